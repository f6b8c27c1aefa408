package validation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

func set(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *cluster.ManagedClusterSet {
	return &cluster.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}},
	}
}

func matching(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func TestSetName(t *testing.T) {
	for name, want := range map[string][]string{
		"prod":                  nil,
		"prod.eu":               nil,
		strings.Repeat("a", 63): nil,
		strings.Repeat("a", 64): {"metadata.name: Invalid value"},
		"Prod":                  {"metadata.name: Invalid value"},
		"prod_eu":               {"metadata.name: Invalid value"},
		"":                      {"metadata.name: Required value"},
	} {
		fieldtest.Check(t, ManagedClusterSet.New(set(name, clusterv1beta2.ExclusiveClusterSetLabel, nil)), want...)
	}
	generated := set("", clusterv1beta2.ExclusiveClusterSetLabel, nil)
	generated.GenerateName = "prod-"
	fieldtest.Check(t, ManagedClusterSet.New(generated), "metadata.name: Required value")
	inNamespace := set("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil)
	inNamespace.Namespace = "a"
	fieldtest.Check(t, ManagedClusterSet.New(inNamespace), "metadata.namespace: Forbidden")
}

func TestSelector(t *testing.T) {
	const selectorType, labelSelector = "spec.clusterSelector.selectorType: ", "spec.clusterSelector.labelSelector"
	tests := map[string]struct {
		set  *cluster.ManagedClusterSet
		want []string
	}{
		"by the set's own label":      {set("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil), nil},
		"with an empty selector":      {set("prod", clusterv1beta2.ExclusiveClusterSetLabel, &metav1.LabelSelector{}), nil},
		"with a selector as well":     {set("prod", clusterv1beta2.ExclusiveClusterSetLabel, matching("a", "b")), []string{labelSelector + ": Forbidden"}},
		"by labels":                   {set("prod", clusterv1beta2.LabelSelector, matching("a", "b")), nil},
		"all":                         {set("prod", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), nil},
		"by labels without selector":  {set("prod", clusterv1beta2.LabelSelector, nil), []string{labelSelector + ": Required value"}},
		"bad label":                   {set("prod", clusterv1beta2.LabelSelector, matching("a b", "c d")), []string{labelSelector + ".matchLabels: Invalid value", labelSelector + ".matchLabels: Invalid value"}},
		"no type":                     {set("prod", "", nil), []string{selectorType + "Unsupported value"}},
		"another type":                {set("prod", "LegacyClusterSetLabel", nil), []string{selectorType + "Unsupported value"}},
		"default":                     {set("default", clusterv1beta2.ExclusiveClusterSetLabel, nil), nil},
		"default by labels":           {set("default", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), []string{selectorType + "Invalid value"}},
		"global":                      {set("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), nil},
		"global by the set's label":   {set("global", clusterv1beta2.ExclusiveClusterSetLabel, nil), []string{selectorType + "Invalid value"}},
		"global with some clusters":   {set("global", clusterv1beta2.LabelSelector, matching("a", "b")), []string{labelSelector + ": Invalid value"}},
		"global without any selector": {set("global", clusterv1beta2.LabelSelector, nil), []string{labelSelector + ": Required value"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManagedClusterSet.New(test.set), test.want...)
		})
	}
}

func TestSetNamespaces(t *testing.T) {
	with := func(names ...string) *cluster.ManagedClusterSet {
		s := set("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil)
		for _, name := range names {
			s.Spec.ManagedNamespaces = append(s.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: name})
		}
		return s
	}
	var many []string
	for i := range clusterv1beta2.MaxManagedNamespaces + 1 {
		many = append(many, fmt.Sprintf("n-%d", i))
	}
	const path = "spec.managedNamespaces"
	for name, test := range map[string]struct {
		names []string
		want  []string
	}{
		"valid":              {names: []string{"shop", "1", strings.Repeat("a", 63)}},
		"no labels":          {names: []string{"Shop", "a.b", "-a", strings.Repeat("a", 64)}, want: []string{path + "[0].name: Invalid value", path + "[1].name: Invalid value", path + "[2].name: Invalid value", path + "[3].name: Invalid value"}},
		"no name":            {names: []string{""}, want: []string{path + "[0].name: Required value"}},
		"twice":              {names: []string{"shop", "bank", "shop"}, want: []string{path + "[2].name: Duplicate value"}},
		"as many as allowed": {names: many[1:]},
		"too many":           {names: many, want: []string{path + ": Too many"}},
	} {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManagedClusterSet.New(with(test.names...)), test.want...)
			fieldtest.Check(t, ManagedClusterSet.Update(with(test.names...), with()), test.want...)
		})
	}
	// A set that was stored before these rules stays usable, but an update may not add errors.
	fieldtest.Check(t, ManagedClusterSet.Update(with("Shop", "bank"), with("Shop")))
	fieldtest.Check(t, ManagedClusterSet.Update(with("Shop", "Bank"), with("Shop")), path+"[1].name: Invalid value")
}

func TestSetUpdate(t *testing.T) {
	old := set("prod", clusterv1beta2.LabelSelector, matching("a", "b"))
	fieldtest.Check(t, ManagedClusterSet.Update(set("prod", clusterv1beta2.LabelSelector, matching("a", "c")), old))
	fieldtest.Check(t, ManagedClusterSet.Update(set("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil), old),
		"spec.clusterSelector.selectorType: Invalid value")
	fieldtest.Check(t, ManagedClusterSet.Update(set("prod", clusterv1beta2.LabelSelector, nil), old),
		"spec.clusterSelector.labelSelector: Required value")
	fieldtest.Check(t, ManagedClusterSet.Update(
		set("global", clusterv1beta2.LabelSelector, matching("a", "b")), set("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{})),
		"spec.clusterSelector.labelSelector: Invalid value")
}

func TestSetUpdateIgnoresStoredErrors(t *testing.T) {
	old := set("Not.A.Label", clusterv1beta2.ExclusiveClusterSetLabel, matching("a", "b"))
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"region": "north"}
	fieldtest.Check(t, ManagedClusterSet.Update(labelled, old))
	mended := old.DeepCopy()
	mended.Spec.ClusterSelector.LabelSelector = nil
	fieldtest.Check(t, ManagedClusterSet.Update(mended, old))
	worse := old.DeepCopy()
	worse.Spec.ClusterSelector.LabelSelector = matching("a", "c")
	fieldtest.Check(t, ManagedClusterSet.Update(worse, old), "spec.clusterSelector.labelSelector: Forbidden")
}

func TestSetStatus(t *testing.T) {
	old := set("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil)
	bad := old.DeepCopy()
	bad.Status.Conditions = []metav1.Condition{{Type: clusterv1beta2.ConditionClusterSetEmpty, Status: metav1.ConditionTrue, Reason: "NoClusterMatched"}}
	fieldtest.Check(t, ManagedClusterSet.UpdateStatus(bad, old), "status.conditions[0].lastTransitionTime: Required value")
	fieldtest.Check(t, ManagedClusterSet.UpdateStatus(bad, bad.DeepCopy()))
}
