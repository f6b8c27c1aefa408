package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// judgedExecutor is the executor of the ManifestWorks in these tests.
var judgedExecutor = types.NamespacedName{Namespace: "apps", Name: "deployer"}

// unsorted is a manifest with unsorted keys, and with a character that has two encodings in JSON.
const unsorted = `{"kind":"ConfigMap","metadata":{"namespace":"default","name":"judged"},"data":{"z":"<1>","a":"2"},"apiVersion":"v1"}`

// executeAs returns the rule that allows execute-as for some executors.
func executeAs(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, ResourceNames: names, Verbs: []string{"execute-as"}}
}

func executorName(executor types.NamespacedName) string {
	return "system:serviceaccount:" + executor.Namespace + ":" + executor.Name
}

func judgedWork(name string, executor *workv1.ManifestWorkExecutor) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       workv1.ManifestWorkSpec{Executor: executor, Workload: workv1.ManifestsTemplate{Manifests: rawManifests(unsorted)}},
	}
}

// judgedManifest returns a manifest of the same ConfigMap with other data.
func judgedManifest(value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"judged","namespace":"default"},"data":{"value":%q}}`, value)
}

func appliedWork(name, rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{%s}}`, name, rest)
}

// asJSON returns an executor as JSON.
func asJSON(t *testing.T, executor types.NamespacedName) string {
	t.Helper()
	return string(framework.Must(json.Marshal(executorOf(executor)))(t))
}

// workCreations returns requests that create a ManifestWork with an executor.
func workCreations(t *testing.T, works workclient.ManifestWorkInterface, name string, executor types.NamespacedName) map[string]func() error {
	return map[string]func() error{
		"create": func() error {
			_, err := works.Create(t.Context(), judgedWork(name, executorOf(executor)), metav1.CreateOptions{})
			return err
		},
		"create dry run": func() error {
			_, err := works.Create(t.Context(), judgedWork(name+"-dry", executorOf(executor)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		"server-side apply": func() error {
			content := appliedWork(name+"-applied", fmt.Sprintf(`"executor":%s,"workload":{"manifests":[%s]}`, asJSON(t, executor), unsorted))
			_, err := works.Patch(t.Context(), name+"-applied", types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "test"})
			return err
		},
	}
}

// workChanges returns requests that change the spec of a ManifestWork. They also set the given
// executor, which may be the current one.
func workChanges(t *testing.T, works workclient.ManifestWorkInterface, name, value string, executor types.NamespacedName) map[string]func() error {
	ctx := t.Context()
	patch := func(kind types.PatchType, content []byte, options metav1.PatchOptions) func() error {
		return func() error {
			_, err := works.Patch(ctx, name, kind, content, options)
			return err
		}
	}
	return map[string]func() error{
		"update": func() error {
			work, err := works.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			work.Spec.Executor = executorOf(executor)
			work.Spec.Workload.Manifests[0].Raw = []byte(judgedManifest(value + " by update"))
			_, err = works.Update(ctx, work, metav1.UpdateOptions{})
			return err
		},
		"merge patch": patch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s,"workload":{"manifests":[%s]}}}`, asJSON(t, executor), judgedManifest(value+" by merge patch")), metav1.PatchOptions{}),
		"JSON patch": patch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"replace","path":"/spec/workload/manifests/0","value":%s},{"op":"replace","path":"/spec/executor","value":%s}]`,
			judgedManifest(value+" by JSON patch"), asJSON(t, executor)), metav1.PatchOptions{}),
		"server-side apply": patch(types.ApplyPatchType, appliedWork(name, fmt.Sprintf(`"executor":%s,"workload":{"manifests":[%s]}`, asJSON(t, executor), judgedManifest(value+" by apply"))),
			metav1.PatchOptions{FieldManager: "test", Force: new(true)}),
		"merge patch of deleteOption": patch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s,"deleteOption":{"propagationPolicy":"Foreground","ttlSecondsAfterFinished":%d}}}`,
			asJSON(t, executor), 1000+len(value)), metav1.PatchOptions{}),
	}
}

// workRefused checks that a user was denied a write of a ManifestWork, and that the error contains
// the missing rule. It returns that rule.
func workRefused(t *testing.T, what string, err error, user, cluster string, executor types.NamespacedName) rbacv1.PolicyRule {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("%s by %s = %v, want Forbidden", what, user, err)
	}
	for _, text := range []string{fmt.Sprintf("%q", user), executor.String(), "cluster " + cluster, fmt.Sprintf("a Role in namespace %q", cluster)} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s = %v, want an error with %s", what, err, text)
		}
	}
	rule := ruleIn(t, err.Error())
	if want := executeAs(executorName(executor)); rule.String() != want.String() {
		t.Errorf("%s: rule in the message = %v, want %v", what, rule, want)
	}
	return rule
}

// flowRule matches a rule in a message. Messages contain rules in the flow style of YAML.
var flowRule = regexp.MustCompile(`\{[^{}]*\b(apiGroups|nonResourceURLs)\b[^{}]*\}`)

// rulesIn returns the missing rules in a message. It checks that each rule can be pasted into a
// Role.
func rulesIn(t *testing.T, message string) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, text := range flowRule.FindAllString(message, -1) {
		var rule rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Errorf("rule in the message = %s, want a PolicyRule: %v", text, err)
		}
		rules = append(rules, rule)
	}
	if len(rules) == 0 {
		t.Fatalf("rules in the message = none, want at least one: %s", message)
	}
	return rules
}

// ruleIn returns the one missing rule in a message.
func ruleIn(t *testing.T, message string) rbacv1.PolicyRule {
	t.Helper()
	rules := rulesIn(t, message)
	if len(rules) != 1 {
		t.Fatalf("rules in the message = %d, want 1: %s", len(rules), message)
	}
	return rules[0]
}

// TestExecutorRequiresExecuteAs checks that creating a ManifestWork with an executor requires
// execute-as, granted to the user or to one of its groups.
func TestExecutorRequiresExecuteAs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	stranger := framework.NewCaller(t, f.Hub, "stranger", "visitors")
	byName := framework.NewCaller(t, f.Hub, "named-deployer")
	byGroup := framework.NewCaller(t, f.Hub, "member", "deployers")
	elsewhere := framework.NewCaller(t, f.Hub, "deployer-elsewhere")
	byAccount := framework.NewAccountCaller(t, f.Hub, "default", "default")
	for _, c := range []*framework.Caller{stranger, byName, byGroup, elsewhere, byAccount} {
		c.May(t, cluster, writeWorks)
	}
	byName.May(t, cluster, executeAs(executorName(judgedExecutor)))
	byAccount.May(t, cluster, executeAs(executorName(judgedExecutor)))
	byGroup.Subject = groupSubject("deployers")
	byGroup.May(t, cluster, executeAs(executorName(judgedExecutor)))
	// The rule applies only in the namespace of the Role, and only to the resource names in it.
	elsewhere.May(t, "default", executeAs())
	elsewhere.May(t, cluster, executeAs("system:serviceaccount:apps:other", "system:serviceaccount::klusterlet-work-sa"))

	for _, c := range []*framework.Caller{stranger, elsewhere} {
		for way, create := range workCreations(t, c.OCM.WorkV1().ManifestWorks(cluster), "of-nobody", judgedExecutor) {
			workRefused(t, way, create(), c.Name, cluster, judgedExecutor)
		}
	}
	left := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).List(t.Context(), metav1.ListOptions{}))(t)
	if len(left.Items) > 0 {
		t.Errorf("stored ManifestWork = %v, want none after the denial", left.Items[0].Name)
	}
	for i, c := range []*framework.Caller{byName, byGroup, byAccount} {
		works := c.OCM.WorkV1().ManifestWorks(cluster)
		name := fmt.Sprintf("of-%d", i)
		for way, create := range workCreations(t, works, name, judgedExecutor) {
			if err := create(); err != nil {
				t.Errorf("%s by %s = %v, want nil", way, c.Name, err)
			}
		}
		for way, change := range workChanges(t, works, name, "changed", judgedExecutor) {
			if err := change(); err != nil {
				t.Errorf("%s by %s = %v, want nil", way, c.Name, err)
			}
		}
		// Another executor requires another permission.
		other := types.NamespacedName{Namespace: "kube-system", Name: "admin"}
		for way, change := range workChanges(t, works, name, "taken", other) {
			workRefused(t, way, change(), c.Name, cluster, other)
		}
	}
}

// TestExecutorChecksEverySpecChange checks that a user without execute-as cannot change the spec of
// a ManifestWork, but can change all other fields.
func TestExecutorChecksEverySpecChange(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cluster := t.Context(), f.SilentCluster(t)
	stranger := framework.NewCaller(t, f.Hub, "stranger")
	stranger.May(t, cluster, writeWorks, rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks/status"}, Verbs: []string{"update", "patch"}})
	works := f.OCM.WorkV1().ManifestWorks(cluster)
	created := framework.Must(works.Create(ctx, judgedWork("kept", executorOf(judgedExecutor)), metav1.CreateOptions{}))(t)

	theirs := stranger.OCM.WorkV1().ManifestWorks(cluster)
	for way, change := range workChanges(t, theirs, "kept", "hijacked", judgedExecutor) {
		workRefused(t, way, change(), stranger.Name, cluster, judgedExecutor)
	}

	patch := func(kind types.PatchType, content string, options metav1.PatchOptions, subresources ...string) func() error {
		return func() error {
			_, err := theirs.Patch(ctx, "kept", kind, []byte(content), options, subresources...)
			return err
		}
	}
	workRefused(t, "removal of the executor", patch(types.MergePatchType, `{"spec":{"executor":null}}`, metav1.PatchOptions{})(), stranger.Name, cluster, judgedExecutor)
	_, agent := f.AgentOf(t, cluster)
	asAgent := agent.WorkV1().ManifestWorks(cluster)
	for way, write := range map[string]func() error{
		"a label by merge patch":           patch(types.MergePatchType, `{"metadata":{"labels":{"a":"1"}}}`, metav1.PatchOptions{}),
		"a label by strategic merge patch": patch(types.StrategicMergePatchType, `{"metadata":{"labels":{"b":"1"}}}`, metav1.PatchOptions{}),
		"a label by server-side apply":     patch(types.ApplyPatchType, string(fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"kept","labels":{"c":"1"}}}`)), metav1.PatchOptions{FieldManager: "labels"}),
		"an annotation by update": func() error {
			work, err := theirs.Get(ctx, "kept", metav1.GetOptions{})
			if err != nil {
				return err
			}
			work.Annotations = map[string]string{"d": "1"}
			_, err = theirs.Update(ctx, work, metav1.UpdateOptions{})
			return err
		},
		"the same manifest with its keys in another order": patch(types.MergePatchType, fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`,
			`{"apiVersion":"v1","data":{"a":"2","z":"<1>"},"kind":"ConfigMap","metadata":{"name":"judged","namespace":"default"}}`), metav1.PatchOptions{}),
		"the status": patch(types.MergePatchType, `{"status":{"conditions":[{"type":"Applied","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, metav1.PatchOptions{}, "status"),
		"the spec through the status subresource, without effect": patch(types.MergePatchType, `{"spec":{"workload":{"manifests":[]},"executor":null}}`, metav1.PatchOptions{}, "status"),
		"the finalizer of the agent": func() error {
			content := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`, created.UID)
			_, err := asAgent.Patch(ctx, "kept", types.MergePatchType, []byte(content), metav1.PatchOptions{})
			return err
		},
	} {
		if err := write(); err != nil {
			t.Errorf("write of %s = %v, want nil", way, err)
		}
	}
	kept := framework.Must(works.Get(ctx, "kept", metav1.GetOptions{}))(t)
	if kept.Generation != created.Generation || string(kept.Spec.Workload.Manifests[0].Raw) != string(created.Spec.Workload.Manifests[0].Raw) {
		t.Errorf("generation = %d with manifest %s, want %d with %s", kept.Generation, kept.Spec.Workload.Manifests[0].Raw, created.Generation, created.Spec.Workload.Manifests[0].Raw)
	}
	if len(kept.Finalizers) != 1 || len(kept.Labels) != 3 || kept.Annotations["d"] == "" || len(kept.Status.Conditions) != 1 {
		t.Errorf("stored metadata = %+v and status = %+v, want one finalizer, three labels, annotation d and one condition", kept.ObjectMeta, kept.Status)
	}
	if _, err := asAgent.Patch(ctx, "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("removal of the finalizer by the agent = %v, want nil", err)
	}
	if _, err := asAgent.Patch(ctx, "kept", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, judgedManifest("of the agent")), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("update of the spec by the agent = %v, want Forbidden", err)
	}
}

// TestExecutorErrorContainsTheMissingRule checks that the rule in the error message allows the
// write.
func TestExecutorErrorContainsTheMissingRule(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	c := framework.NewCaller(t, f.Hub, "newcomer")
	c.May(t, cluster, writeWorks)
	works := c.OCM.WorkV1().ManifestWorks(cluster)
	write := workCreations(t, works, "helped", judgedExecutor)["create"]
	rule := workRefused(t, "create", write(), c.Name, cluster, judgedExecutor)
	c.May(t, cluster, rule)
	framework.Eventually(t, "the rule in the error message allows the write", func(context.Context) error { return write() })
	for way, change := range workChanges(t, works, "helped", "helped", judgedExecutor) {
		if err := change(); err != nil {
			t.Errorf("%s = %v, want nil", way, err)
		}
	}
}

// TestExecutorChoiceIsRecorded checks that executorChoice contains the users that chose the
// executor and changed the spec. Only the server can write these fields.
func TestExecutorChoiceIsRecorded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cluster := t.Context(), f.SilentCluster(t)
	first, second := framework.NewCaller(t, f.Hub, "first"), framework.NewCaller(t, f.Hub, "second")
	status := rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks/status"}, Verbs: []string{"update", "patch"}}
	for _, c := range []*framework.Caller{first, second} {
		c.May(t, cluster, writeWorks, status, executeAs())
	}
	forged := &workv1.ExecutorChoice{
		ChosenBy: workv1.ExecutorChooser{Username: "root"}, ChosenAt: metav1.Unix(1, 0),
		SpecChangedBy: workv1.ExecutorChooser{Username: "root"}, SpecChangedAt: metav1.Unix(1, 0),
	}
	began := metav1.Now().Rfc3339Copy()
	says := func(what string, work *workv1.ManifestWork, chosen, changed string) *workv1.ExecutorChoice {
		t.Helper()
		choice := work.Status.ExecutorChoice
		if choice == nil || choice.ChosenBy.Username != chosen || choice.SpecChangedBy.Username != changed {
			t.Fatalf("%s: executorChoice = %+v, want chosenBy %s and specChangedBy %s", what, choice, chosen, changed)
		}
		if choice.ChosenAt.Before(&began) || choice.SpecChangedAt.Before(&choice.ChosenAt) || choice.SpecChangedAt.After(time.Now()) {
			t.Fatalf("%s: chosenAt = %s and specChangedAt = %s, want both between %s and now, in this order", what, choice.ChosenAt, choice.SpecChangedAt, began)
		}
		return choice
	}

	work := judgedWork("stamped", executorOf(judgedExecutor))
	work.Status.ExecutorChoice = forged
	work = framework.Must(first.OCM.WorkV1().ManifestWorks(cluster).Create(ctx, work, metav1.CreateOptions{}))(t)
	says("creation", work, "first", "first")

	works := second.OCM.WorkV1().ManifestWorks(cluster)
	forgery := string(framework.Must(json.Marshal(forged))(t))
	for way, forge := range map[string]func() error{
		"a patch of the status": func() error {
			_, err := works.Patch(ctx, "stamped", types.MergePatchType, []byte(`{"status":{"executorChoice":`+forgery+`}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"a patch of the status that removes executorChoice": func() error {
			_, err := works.Patch(ctx, "stamped", types.MergePatchType, []byte(`{"status":{"executorChoice":null}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"server-side apply of the status": func() error {
			_, err := works.Patch(ctx, "stamped", types.ApplyPatchType, []byte(`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"stamped"},"status":{"executorChoice":`+forgery+`}}`),
				metav1.PatchOptions{FieldManager: "forger", Force: new(true)}, "status")
			return err
		},
		"an update of the status without executorChoice": func() error {
			current, err := works.Get(ctx, "stamped", metav1.GetOptions{})
			if err != nil {
				return err
			}
			current.Status.ExecutorChoice = nil
			_, err = works.UpdateStatus(ctx, current, metav1.UpdateOptions{})
			return err
		},
		"an update": func() error {
			current, err := works.Get(ctx, "stamped", metav1.GetOptions{})
			if err != nil {
				return err
			}
			current.Labels = map[string]string{"a": "1"}
			current.Status.ExecutorChoice = forged
			_, err = works.Update(ctx, current, metav1.UpdateOptions{})
			return err
		},
		"a patch of the object": func() error {
			_, err := works.Patch(ctx, "stamped", types.MergePatchType, []byte(`{"metadata":{"labels":{"b":"1"}},"status":{"executorChoice":`+forgery+`}}`), metav1.PatchOptions{})
			return err
		},
	} {
		if err := forge(); err != nil {
			t.Errorf("%s = %v, want nil", way, err)
		}
		says(way, framework.Must(works.Get(ctx, "stamped", metav1.GetOptions{}))(t), "first", "first")
	}

	edit := func(content string) *workv1.ManifestWork {
		t.Helper()
		return framework.Must(works.Patch(ctx, "stamped", types.MergePatchType, []byte(content), metav1.PatchOptions{}))(t)
	}
	before := work.Status.ExecutorChoice
	changed := says("another manifest", edit(fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`, judgedManifest("2"))), "first", "second")
	if !changed.ChosenAt.Equal(&before.ChosenAt) {
		t.Errorf("chosenAt = %s, want %s", changed.ChosenAt, before.ChosenAt)
	}
	says("another executor", edit(`{"spec":{"executor":{"subject":{"serviceAccount":{"name":"other"}}}}}`), "second", "second")
	works = first.OCM.WorkV1().ManifestWorks(cluster)
	says("removal of the executor", edit(`{"spec":{"executor":null}}`), "first", "first")
	works = second.OCM.WorkV1().ManifestWorks(cluster)
	says("another manifest without executor", edit(fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`, judgedManifest("3"))), "first", "second")

	never := judgedWork("never", nil)
	never.Status.ExecutorChoice = forged
	if never = framework.Must(works.Create(ctx, never, metav1.CreateOptions{}))(t); never.Status.ExecutorChoice != nil {
		t.Errorf("executorChoice without an executor = %+v, want nil", never.Status.ExecutorChoice)
	}
	never = framework.Must(works.Patch(ctx, "never", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}},"status":{"executorChoice":%s}}`, judgedManifest("4"), forgery), metav1.PatchOptions{}))(t)
	if never.Status.ExecutorChoice != nil {
		t.Errorf("executorChoice after a change without an executor = %+v, want nil", never.Status.ExecutorChoice)
	}
	works = first.OCM.WorkV1().ManifestWorks(cluster)
	never = framework.Must(works.Patch(ctx, "never", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s}}`, asJSON(t, judgedExecutor)), metav1.PatchOptions{}))(t)
	says("addition of an executor", never, "first", "first")
}
