package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func kubectlPatch(t *testing.T, p *place) {
	name := p.create(t).GetName()
	p.run(t, "patch", p.arg(), name, "--type=json", `--patch=[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`)
	p.run(t, "patch", p.arg(), name, "--type=merge", `--patch={"metadata":{"labels":{"merge":"yes"}}}`)
	change, err := json.Marshal(p.specChange(t))
	if err != nil {
		t.Fatal(err)
	}
	p.run(t, "patch", p.arg(), name, "--type=merge", "--patch="+string(change))
	p.run(t, "label", p.arg(), name, "label=yes")
	p.run(t, "annotate", p.arg(), name, "annotation=yes")
	p.run(t, "apply", "--server-side", "--field-manager=patcher", "--filename="+p.file(t, p.bare(name, map[string]any{"apply": "yes"})))

	got := p.get(t, name)
	for _, label := range []string{"json", "merge", "label", "apply"} {
		if got.GetLabels()[label] != "yes" {
			t.Errorf("labels = %v, want %s=yes", got.GetLabels(), label)
		}
	}
	if got.GetAnnotations()["annotation"] != "yes" {
		t.Errorf("annotations = %v, want annotation=yes", got.GetAnnotations())
	}
	if want := p.generation(t, 1); got.GetGeneration() != want {
		t.Errorf("generation after one change of the spec = %d, want %d", got.GetGeneration(), want)
	}
	wantContains(t, p.refused(t, nil, "patch", p.arg(), name, "--type=json", `--patch=[{"op":"test","path":"/kind","value":"Other"}]`),
		"The request is invalid")
}

func kubectlEdit(t *testing.T, p *place) {
	name := p.create(t).GetName()
	p.merge(t, name, labelled("edited", "before"))
	cmd := p.hub.command(t.Context(), "", p.inPlace([]string{"edit", p.arg(), name})...)
	cmd.Env = append(cmd.Env, "KUBE_EDITOR=sed -i -e s/before/after/")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := p.get(t, name).GetLabels()["edited"]; got != "after" {
		t.Errorf("label edited = %q, want after", got)
	}
}

func kubectlDelete(t *testing.T, p *place) {
	kept, one := p.create(t).GetName(), p.create(t).GetName()
	wantContains(t, p.run(t, "delete", p.arg(), one), one, "deleted")
	for range 2 {
		p.merge(t, p.create(t).GetName(), labelled("tier", "gone"))
	}
	p.run(t, "delete", p.arg(), "--selector="+p.selector()+",tier=gone")
	names, err := p.names(t.Context(), p.listOptions())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{kept}) {
		t.Errorf("remaining objects = %v, want %s only", names, kept)
	}
	wantContains(t, p.refused(t, nil, "delete", p.arg(), one), "not found")
}

// kubectlDryRun checks that --dry-run=server returns the same answer as a write and stores nothing.
func kubectlDryRun(t *testing.T, p *place) {
	absent := p.object(t)
	wantContains(t, p.runWith(t, absent, "create", "--dry-run=server", "--filename=-", "--output=yaml"), "uid: ")
	p.runWith(t, absent, "apply", "--dry-run=server", "--filename=-")
	p.runWith(t, absent, "apply", "--server-side", "--dry-run=server", "--filename=-")
	p.wantNothing(t)

	before := p.create(t)
	name := before.GetName()
	change, err := json.Marshal(p.specChange(t))
	if err != nil {
		t.Fatal(err)
	}
	var patched unstructured.Unstructured
	out := p.run(t, "patch", p.arg(), name, "--dry-run=server", "--type=merge", "--patch="+string(change), "--output=json")
	if err := patched.UnmarshalJSON([]byte(out)); err != nil {
		t.Fatal(err)
	}
	if want := p.generation(t, 1); patched.GetGeneration() != want {
		t.Errorf("generation in the answer to a dry-run patch = %d, want %d", patched.GetGeneration(), want)
	}
	p.runWith(t, p.changed(t, p.named(t, name)), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename=-")
	p.run(t, "delete", p.arg(), name, "--dry-run=server")
	after := p.get(t, name)
	if after.GetGeneration() != 1 || after.GetDeletionTimestamp() != nil || after.GetUID() != before.GetUID() {
		t.Errorf("metadata after dry-run requests = %v, want no change", after.Object["metadata"])
	}
}

// wantNothing checks that the place has no object of any kind: creating an object may create
// objects of other kinds.
func (p *place) wantNothing(t *testing.T) {
	t.Helper()
	for _, k := range kinds() {
		options := p.listOptions()
		if !k.ClusterScoped {
			if p.ClusterScoped {
				continue
			}
			options = metav1.ListOptions{}
		}
		other := &place{kind: k, client: p.hub.dynamic.Resource(k.gvr())}
		if !k.ClusterScoped {
			other.client = p.hub.dynamic.Resource(k.gvr()).Namespace(p.namespace)
		}
		names, err := other.names(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 0 {
			t.Errorf("%s = %v, want none", k.Name, names)
		}
	}
}

// kubectlStrictFields checks that field validation names an unknown or duplicate field.
func kubectlStrictFields(t *testing.T, p *place) {
	object := p.object(t)
	if err := unstructured.SetNestedField(object.Object, "x", "spec", "surprise"); err != nil {
		t.Fatal(err)
	}
	wantContains(t, p.refused(t, object, "create", "--validate=strict", "--filename=-"), `unknown field "spec.surprise"`)
	_, stderr, err := p.kubectl(t, object, "create", "--validate=warn", "--filename=-")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	wantContains(t, stderr, `Warning: unknown field "spec.surprise"`)

	content, err := p.object(t).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	twice := `{"spec":{},` + strings.TrimPrefix(string(content), "{")
	answer, err := p.hub.kube.Discovery().RESTClient().Post().AbsPath(p.path(p.namespace)).
		Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/json").Body([]byte(twice)).DoRaw(t.Context())
	if err == nil {
		t.Fatal("create with a duplicate field succeeded, want 400")
	}
	wantContains(t, string(answer), `duplicate field \"spec\"`)
}

// TestExamples applies every example without a change, in the namespace that it names.
func TestExamples(t *testing.T) {
	t.Parallel()
	namespaces := map[string]bool{}
	for _, k := range kinds() {
		if namespace := k.sample(t).GetNamespace(); namespace != "" && !namespaces[namespace] {
			namespaces[namespace] = true
			shared.addCluster(t, namespace)
		}
	}
	for _, k := range kinds() {
		t.Run(k.arg(), func(t *testing.T) {
			p := &place{kind: k, hub: shared, namespace: k.sample(t).GetNamespace()}
			p.run(t, "apply", "--filename="+p.file(t, k.sample(t)))
		})
	}
}
