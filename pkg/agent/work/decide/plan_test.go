package decide

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// fakeMapper serves the kinds that are its keys. The value is true if the kind is namespaced.
type fakeMapper map[schema.GroupVersionKind]bool

func (m fakeMapper) Mapping(_ context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	namespaced, ok := m[kind]
	if !ok {
		return nil, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	mapping := &meta.RESTMapping{Resource: resource, GroupVersionKind: kind, Scope: meta.RESTScopeRoot}
	if namespaced {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, nil
}

var testMapper = fakeMapper{
	{Version: "v1", Kind: "ConfigMap"}:                                                             true,
	{Version: "v1", Kind: "Namespace"}:                                                             false,
	{Group: "apps", Version: "v1", Kind: "Deployment"}:                                             true,
	{Group: rbacv1.GroupName, Version: "v1", Kind: "Role"}:                                         true,
	{Group: rbacv1.GroupName, Version: "v1", Kind: "RoleBinding"}:                                  true,
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:               false,
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}: false,
}

func workOf(manifests ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{}
	for _, text := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(text)}})
	}
	return work
}

func TestPlan(t *testing.T) {
	items := Plan(t.Context(), testMapper, workOf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"n"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a","namespace":"n"}}`,
		`{"apiVersion":"x.example.com/v1","kind":"X","metadata":{"name":"a"}}`,
		`nonsense`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"},"data":{}}`,
	))
	for i, good := range []bool{true, true, false, false, false, false, false} {
		if got := items[i].Err == nil; got != good {
			t.Errorf("Plan() error of manifest %d = %v, want success = %t", i, items[i].Err, good)
		}
		if items[i].Ordinal != i {
			t.Errorf("ordinal of manifest %d = %d, want %d", i, items[i].Ordinal, i)
		}
	}
	if items[1].Namespace != "" || items[1].Object.GetNamespace() != "" {
		t.Error("namespace of a cluster-scoped object is set, want none")
	}
	if again := Plan(t.Context(), testMapper, workOf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":"a"}}`)); again[0].Hash != items[0].Hash {
		t.Error("hash differs with the order of fields, want the same hash")
	}
}

func TestApplyOrder(t *testing.T) {
	manifest := func(apiVersion, kind string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"a","namespace":"n"}}`
	}
	items := Plan(t.Context(), testMapper, workOf(
		manifest("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
		manifest("apps/v1", "Deployment"),
		manifest("unknown.example.com/v1", "Unknown"),
		manifest(rbacv1.GroupName+"/v1", "RoleBinding"),
		manifest("v1", "ConfigMap"),
		manifest(rbacv1.GroupName+"/v1", "Role"),
		manifest("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
		manifest("v1", "Namespace"),
	))
	var got []int
	for _, it := range Order(items) {
		got = append(got, it.Ordinal)
	}
	if want := []int{7, 4, 6, 5, 3, 1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("Order() = %v, want %v", got, want)
	}
}

// TestEntriesAreOrdered checks that the record of an upstream agent, which has another order, is
// removed in the reverse order of application.
func TestEntriesAreOrdered(t *testing.T) {
	var entries []workv1.AppliedManifestResourceMeta
	for _, resource := range []schema.GroupResource{
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}, {Group: "example.com", Resource: "widgets"},
		{Group: "apiregistration.k8s.io", Resource: "apiservices"}, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, {Resource: "namespaces"},
	} {
		entries = append(entries, workv1.AppliedManifestResourceMeta{Group: resource.Group, Resource: resource.Resource})
	}
	var got []string
	for _, entry := range OrderEntries(entries) {
		got = append(got, entry.Resource)
	}
	if want := []string{"namespaces", "customresourcedefinitions", "widgets", "apiservices", "validatingwebhookconfigurations"}; !slices.Equal(got, want) {
		t.Errorf("OrderEntries() = %v, want %v", got, want)
	}
}

func TestConfigFor(t *testing.T) {
	option := func(name, namespace string, strategy workv1.UpdateStrategyType, path string) workv1.ManifestConfigOption {
		option := workv1.ManifestConfigOption{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: name, Namespace: new(namespace)}}
		if strategy != "" {
			option.UpdateStrategy = &workv1.UpdateStrategy{Type: strategy}
		}
		if path != "" {
			option.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: path, Path: path}}}}
		}
		return option
	}
	id := ObjectID{Resource: "configmaps", Name: "my-config", Namespace: "n"}
	got := ConfigFor([]workv1.ManifestConfigOption{
		option("other", "n", workv1.UpdateStrategyTypeReadOnly, ".other"),
		option("my-*", "*", "", ".first"),
		option("my-config", "n", workv1.UpdateStrategyTypeCreateOnly, ".second"),
		option("*", "*", workv1.UpdateStrategyTypeReadOnly, ""),
	}, id)
	if got.Strategy.Type != workv1.UpdateStrategyTypeCreateOnly || got.FeedbackRules[0].JsonPaths[0].Path != ".first" {
		t.Errorf("ConfigFor() = %+v, want CreateOnly with path .first", got)
	}
	if got := ConfigFor(nil, id); got.Strategy.Type != workv1.UpdateStrategyTypeUpdate {
		t.Errorf("default update strategy = %s, want %s", got.Strategy.Type, workv1.UpdateStrategyTypeUpdate)
	}
}

func TestWildcardMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		matches       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"", "", true}, {"*", "", true}, {"*", "a", true},
		{"a*", "ab", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false}, {"a*bc*bc", "abcbc", true}, {"a*bc*bc", "abc", false},
		{"a.*", "ab", false},
	} {
		if got := wildcardMatches(test.pattern, test.text); got != test.matches {
			t.Errorf("wildcardMatches(%q, %q) = %t, want %t", test.pattern, test.text, got, test.matches)
		}
	}
}

func TestOrphans(t *testing.T) {
	id := ObjectID{Group: "apps", Resource: "deployments", Namespace: "n", Name: "a"}
	rule := workv1.OrphaningRule{Group: new("apps"), Resource: "deployments", Namespace: new("n"), Name: "a"}
	wildcard := rule
	wildcard.Name = "*"
	selective := func(rules ...workv1.OrphaningRule) *workv1.DeleteOption {
		return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan, SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules}}
	}
	for name, test := range map[string]struct {
		option *workv1.DeleteOption
		want   bool
	}{
		"none":       {nil, false},
		"empty":      {&workv1.DeleteOption{}, false},
		"foreground": {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}, false},
		"orphan":     {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}, true},
		"named":      {selective(wildcard, rule), true},
		"wildcard":   {selective(wildcard), false},
		"no rules":   {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan}, false},
	} {
		if got := Orphans(test.option, id); got != test.want {
			t.Errorf("%s: Orphans() = %t, want %t", name, got, test.want)
		}
	}
}

func TestRecordEntries(t *testing.T) {
	items := Plan(t.Context(), testMapper, workOf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"n"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new","namespace":"n"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"failed","namespace":"n"}}`,
	))
	entry := func(name, uid string) workv1.AppliedManifestResourceMeta {
		return workv1.AppliedManifestResourceMeta{
			Resource: "configmaps", Namespace: "n", Name: name, Version: "v1", UID: uid,
		}
	}
	recorded := []workv1.AppliedManifestResourceMeta{entry("left", "l"), entry("kept", "k")}
	before := Intents(recorded, items)
	if want := append(slices.Clone(recorded), entry("new", ""), entry("failed", "")); !slices.Equal(before, want) {
		t.Errorf("Intents() = %v, want %v", before, want)
	}
	current, left := Outcomes(before, items, map[ObjectID]types.UID{items[0].ID(): "k2", items[1].ID(): "n"})
	if want := []workv1.AppliedManifestResourceMeta{entry("kept", "k2"), entry("new", "n"), entry("failed", "")}; !slices.Equal(current, want) {
		t.Errorf("Outcomes() current = %v, want %v", current, want)
	}
	if want := []workv1.AppliedManifestResourceMeta{entry("left", "l")}; !slices.Equal(left, want) {
		t.Errorf("Outcomes() left = %v, want %v", left, want)
	}
	if rest := Without([]workv1.AppliedManifestResourceMeta{entry("a", "k2"), entry("b", "b"), entry("c", "")}, current); len(rest) != 2 {
		t.Errorf("Without() = %v, want two entries", rest)
	}
	if !MayBeAbout([]*Item{{Name: "left", Namespace: "n"}}, left[0]) || MayBeAbout([]*Item{{Name: "other", Namespace: "n"}}, left[0]) || !MayBeAbout([]*Item{{}}, left[0]) {
		t.Error("MayBeAbout() is wrong, want true only for an entry with the name of the item or an item without a name")
	}
}
