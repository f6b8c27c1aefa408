package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var strategies = []workv1.UpdateStrategyType{
	workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeReadOnly,
}

// strategyChange is one change of the update strategy of an applied ConfigMap, together with its data.
type strategyChange struct {
	from, to workv1.UpdateStrategyType
	// foreign is what another writer does before the change: nothing; beside: it applies fields with
	// equal values, and adds a field; over: it overwrites a field.
	foreign string
	force   bool
}

var dataBefore = map[string]string{"keep": "1", "old": "1", "change": "1", "shared": "1"}

var dataAfter = map[string]string{"keep": "1", "change": "2"}

func (s strategyChange) name() string {
	name := strings.ToLower(fmt.Sprintf("%s-%s-%s", s.from, s.to, s.foreign))
	if s.force {
		name += "-force"
	}
	return name
}

// conflicts reports whether the server-side apply conflicts with another writer. An agent is not
// another writer for itself.
func (s strategyChange) conflicts() bool {
	return s.to == workv1.UpdateStrategyTypeServerSideApply && !s.force && (s.foreign == "over" || s.from == workv1.UpdateStrategyTypeReadOnly)
}

// want returns the data after the change.
func (s strategyChange) want() map[string]string {
	data := maps.Clone(dataBefore)
	switch s.foreign {
	case "beside":
		data["theirs"] = "1"
	case "over":
		data["change"] = "theirs"
	}
	if s.to == workv1.UpdateStrategyTypeReadOnly || s.to == workv1.UpdateStrategyTypeCreateOnly || s.conflicts() {
		return data
	}
	data["change"] = "2"
	if s.from == workv1.UpdateStrategyTypeReadOnly {
		return data // another writer owns all fields
	}
	delete(data, "old")
	if s.foreign != "beside" || s.from == workv1.UpdateStrategyTypeUpdate && s.to == workv1.UpdateStrategyTypeUpdate {
		delete(data, "shared")
	}
	return data
}

func dataManifest(name string, data map[string]string) string {
	text, _ := yaml.Marshal(data) // a map of strings does not fail
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: NS}\ndata:\n  %s", name, strings.ReplaceAll(string(text), "\n", "\n  "))
}

func (c *cluster) setStrategy(spec *workv1.ManifestWorkSpec, kind workv1.UpdateStrategyType, force bool) {
	update := workv1.UpdateStrategy{Type: kind}
	if kind == workv1.UpdateStrategyTypeServerSideApply {
		update.ServerSideApply = &workv1.ServerSideApplyConfig{Force: &force}
	}
	strategy("configmaps", update)(spec)
}

func (c *cluster) hasData(name string, want map[string]string) *corev1.ConfigMap {
	c.t.Helper()
	var got *corev1.ConfigMap
	eventually(c.t, "ConfigMap "+name+" has the data", func(context.Context) (err error) {
		if got, err = c.configMap(name); err != nil {
			return err
		}
		if diff := cmp.Diff(want, got.Data); diff != "" {
			managers := ""
			for _, entry := range got.ManagedFields {
				managers += fmt.Sprintf("\n%s by %s: %s", entry.Manager, entry.Operation, entry.FieldsV1)
			}
			return fmt.Errorf("data (-want +got):\n%s%s", diff, managers)
		}
		return nil
	})
	return got
}

// applyData applies data server-side.
func (c *cluster) applyData(name, manager string, data map[string]string) {
	c.t.Helper()
	object := corev1apply.ConfigMap(name, c.name).WithData(data)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Apply(c.t.Context(), object, metav1.ApplyOptions{FieldManager: manager}); err != nil {
		c.t.Fatal(err)
	}
}

// testStrategyChanges checks that a ManifestWork is one writer, whatever its update strategies are: it
// drops the fields that its manifest no longer contains, keeps those of others, and has no
// conflicts with itself.
func testStrategyChanges(t *testing.T, c *cluster) {
	c.run()
	var changes []strategyChange
	for _, from := range strategies {
		for _, to := range strategies {
			for _, foreign := range []string{"nothing", "beside", "over"} {
				if from == to || foreign == "over" && from == workv1.UpdateStrategyTypeUpdate {
					continue // the agent undoes the change of the other writer
				}
				changes = append(changes, strategyChange{from: from, to: to, foreign: foreign})
				if to == workv1.UpdateStrategyTypeServerSideApply {
					changes = append(changes, strategyChange{from: from, to: to, foreign: foreign, force: true})
				}
			}
		}
	}
	for _, change := range changes {
		if change.from == workv1.UpdateStrategyTypeReadOnly {
			c.applyData(change.name(), "other", dataBefore)
		}
		c.create("-"+change.name(), func(spec *workv1.ManifestWorkSpec) { c.setStrategy(spec, change.from, false) }, dataManifest(change.name(), dataBefore))
	}
	for _, change := range changes {
		c.condition(c.name+"-"+change.name(), workv1.WorkApplied, metav1.ConditionTrue)
		switch change.foreign {
		case "beside":
			other := map[string]string{"shared": "1", "theirs": "1"}
			if change.from == workv1.UpdateStrategyTypeReadOnly {
				other = maps.Clone(dataBefore)
				other["theirs"] = "1"
			}
			c.applyData(change.name(), "other", other)
		case "over":
			patch := []byte(`{"data":{"change":"theirs"}}`)
			if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), change.name(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "another"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, change := range changes {
		c.update(c.name+"-"+change.name(), func(spec *workv1.ManifestWorkSpec) {
			c.setStrategy(spec, change.to, change.force)
			spec.Workload.Manifests = []workv1.Manifest{c.manifest(dataManifest(change.name(), dataAfter))}
		})
	}
	for _, change := range changes {
		status := metav1.ConditionTrue
		if change.conflicts() {
			status = metav1.ConditionFalse
		}
		work := c.condition(c.name+"-"+change.name(), workv1.WorkApplied, status)
		c.hasData(change.name(), change.want())
		if message := work.Status.Conditions[0].Message; strings.Contains(message, "work-agent") {
			t.Errorf("message of %s = %q, want no conflict with the agent", change.name(), message)
		}
	}
}

// testStrategyOfDeployment checks a change of the strategy for an object with defaults, and with lists
// whose items have keys.
func testStrategyOfDeployment(t *testing.T, c *cluster) {
	c.run()
	manifest := func(name, env, more string) string {
		return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: NS}, spec: {
		  selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {%s containers: [
		    {name: one, image: "registry.example.com/one:1", ports: [{containerPort: 80}], env: [%s]}]}}}}`, name, more, env)
	}
	before := func(name string) string {
		return manifest(name, `{name: A, value: "1"}, {name: B, value: "1"}`, `nodeSelector: {old: "1"}, hostAliases: [{ip: 192.0.2.1, hostnames: [a]}],`)
	}
	after := func(name string) string { return manifest(name, `{name: A, value: "2"}`, "") }
	set := func(kind workv1.UpdateStrategyType) func(*workv1.ManifestWorkSpec) {
		return func(spec *workv1.ManifestWorkSpec) {
			c.setStrategy(spec, kind, false)
			spec.ManifestConfigs[0].ResourceIdentifier.Group, spec.ManifestConfigs[0].ResourceIdentifier.Resource = new("apps"), "deployments"
		}
	}
	names := map[string]workv1.UpdateStrategyType{}
	for _, from := range strategies[:3] {
		for _, to := range strategies[:2] {
			name := strings.ToLower(fmt.Sprintf("%s-%s", from, to))
			names[name] = to
			c.create("-"+name, set(from), before(name))
		}
	}
	for name, to := range names {
		c.condition(c.name+"-"+name, workv1.WorkApplied, metav1.ConditionTrue)
		c.update(c.name+"-"+name, func(spec *workv1.ManifestWorkSpec) {
			set(to)(spec)
			spec.Workload.Manifests = []workv1.Manifest{c.manifest(after(name))}
		})
	}
	for name := range names {
		c.condition(c.name+"-"+name, workv1.WorkApplied, metav1.ConditionTrue)
		deployment, err := c.kube.AppsV1().Deployments(c.name).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec := deployment.Spec.Template.Spec
		if len(spec.NodeSelector) > 0 || len(spec.HostAliases) > 0 {
			t.Errorf("%s: template = %+v, want no node selector and no host aliases", name, spec)
		}
		if got, want := spec.Containers[0].Env, []corev1.EnvVar{{Name: "A", Value: "2"}}; !slices.Equal(got, want) {
			t.Errorf("%s: env = %v, want %v", name, got, want)
		}
	}
}

// testStrategyMoved checks that a ManifestWork takes over an object that it shared with a deleted
// ManifestWork, or that a deleted one orphaned.
func testStrategyMoved(t *testing.T, c *cluster) {
	c.run()
	type move struct {
		name     string
		from, to workv1.UpdateStrategyType
		orphan   bool
	}
	var moves []move
	for _, from := range strategies[:3] {
		for _, to := range strategies[:2] {
			for name, orphan := range map[string]bool{"shared": false, "orphaned": true} {
				moves = append(moves, move{strings.ToLower(fmt.Sprintf("%s-%s-%s", from, to, name)), from, to, orphan})
			}
		}
	}
	after := func(m move) map[string]string {
		if m.orphan {
			return map[string]string{"keep": "2"}
		}
		return map[string]string{"keep": "1"} // while both apply it, another value is a conflict
	}
	uids := map[string]types.UID{}
	for _, m := range moves {
		c.create("-a-"+m.name, func(spec *workv1.ManifestWorkSpec) {
			c.setStrategy(spec, m.from, false)
			if m.orphan {
				spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
			}
		}, dataManifest(m.name, map[string]string{"keep": "1", "old": "1"}))
	}
	take := func(m move) {
		c.create("-b-"+m.name, func(spec *workv1.ManifestWorkSpec) { c.setStrategy(spec, m.to, false) }, dataManifest(m.name, after(m)))
	}
	for _, m := range moves {
		c.condition(c.name+"-a-"+m.name, workv1.WorkApplied, metav1.ConditionTrue)
		uids[m.name] = c.hasData(m.name, map[string]string{"keep": "1", "old": "1"}).UID
		if m.orphan {
			c.delete(c.name + "-a-" + m.name)
			c.gone(c.name + "-a-" + m.name)
		}
		take(m)
	}
	for _, m := range moves {
		c.condition(c.name+"-b-"+m.name, workv1.WorkApplied, metav1.ConditionTrue)
		if !m.orphan {
			// Otherwise the object would be deleted and created again.
			eventually(t, m.name+" has two owners", func(context.Context) error {
				object, err := c.configMap(m.name)
				if err == nil && len(object.OwnerReferences) != 2 {
					err = fmt.Errorf("owners = %v, want two", object.OwnerReferences)
				}
				return err
			})
			c.delete(c.name + "-a-" + m.name)
			c.gone(c.name + "-a-" + m.name)
		}
	}
	for _, m := range moves {
		if got := c.hasData(m.name, after(m)); got.UID != uids[m.name] {
			t.Errorf("%s: UID = %s, want %s", m.name, got.UID, uids[m.name])
		}
		c.condition(c.name+"-b-"+m.name, workv1.WorkApplied, metav1.ConditionTrue)
	}
}

// testStrategyAfterUpstreamAgent checks that a ManifestWork takes over objects that an upstream OCM
// agent has applied, and its own objects if the field manager changes.
func testStrategyAfterUpstreamAgent(t *testing.T, c *cluster) {
	before, after := map[string]string{"keep": "1", "old": "1"}, map[string]string{"keep": "2"}
	for _, to := range []string{"update", "apply", "blue"} {
		c.applyData("applied-"+to, "work-agent", before)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "updated-" + to}, Data: before}
		if _, err := c.kube.CoreV1().ConfigMaps(c.name).Create(t.Context(), object, metav1.CreateOptions{FieldManager: "work-agent"}); err != nil {
			t.Fatal(err)
		}
	}
	c.run()
	set := func(to string) func(*workv1.ManifestWorkSpec) {
		return func(spec *workv1.ManifestWorkSpec) {
			switch to {
			case "update":
				c.setStrategy(spec, workv1.UpdateStrategyTypeUpdate, false)
			case "blue":
				c.setStrategy(spec, workv1.UpdateStrategyTypeServerSideApply, false)
				spec.ManifestConfigs[0].UpdateStrategy.ServerSideApply.FieldManager = "work-agent-blue"
			default:
				c.setStrategy(spec, workv1.UpdateStrategyTypeServerSideApply, false)
			}
		}
	}
	for _, to := range []string{"update", "apply", "blue"} {
		c.create("-"+to, set(to), dataManifest("applied-"+to, after), dataManifest("updated-"+to, after))
	}
	for _, to := range []string{"update", "apply", "blue"} {
		c.condition(c.name+"-"+to, workv1.WorkApplied, metav1.ConditionTrue)
		c.hasData("applied-"+to, after)
		c.hasData("updated-"+to, after)
	}
	final := map[string]string{"more": "1"}
	c.update(c.name+"-apply", func(spec *workv1.ManifestWorkSpec) {
		set("blue")(spec)
		spec.Workload.Manifests = []workv1.Manifest{c.manifest(dataManifest("applied-apply", final))}
	})
	c.condition(c.name+"-apply", workv1.WorkApplied, metav1.ConditionTrue)
	c.hasData("applied-apply", final)
}

// testStrategyShared checks that two ManifestWorks that apply different fields of one object leave each
// other's fields in place when one changes its strategy.
func testStrategyShared(t *testing.T, c *cluster) {
	c.run()
	set := func(manager string) func(*workv1.ManifestWorkSpec) {
		return func(spec *workv1.ManifestWorkSpec) {
			c.setStrategy(spec, workv1.UpdateStrategyTypeServerSideApply, false)
			spec.ManifestConfigs[0].UpdateStrategy.ServerSideApply.FieldManager = manager
		}
	}
	a := c.create("-a", set("work-agent-a"), dataManifest("a", map[string]string{"a": "1", "old": "1"}))
	b := c.create("-b", set("work-agent-b"), dataManifest("a", map[string]string{"b": "1"}))
	c.condition(a, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(b, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasData("a", map[string]string{"a": "1", "old": "1", "b": "1"})
	for i, change := range []func(*workv1.ManifestWorkSpec){
		func(spec *workv1.ManifestWorkSpec) { c.setStrategy(spec, workv1.UpdateStrategyTypeUpdate, false) },
		set("work-agent-c"),
	} {
		value := fmt.Sprint(i + 2)
		c.update(a, func(spec *workv1.ManifestWorkSpec) {
			change(spec)
			spec.Workload.Manifests = []workv1.Manifest{c.manifest(dataManifest("a", map[string]string{"a": value}))}
		})
		c.condition(a, workv1.WorkApplied, metav1.ConditionTrue)
		got := c.hasData("a", map[string]string{"a": value, "b": "1"})
		if len(got.OwnerReferences) != 2 {
			t.Errorf("ownerReferences = %v, want 2", got.OwnerReferences)
		}
	}
	c.delete(b)
	c.gone(b)
	c.hasData("a", map[string]string{"a": "3"})
	c.delete(a)
	c.gone(a)
	if _, err := c.configMap("a"); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ConfigMap a) = %v, want NotFound", err)
	}
}
