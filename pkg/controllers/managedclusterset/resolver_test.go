package managedclusterset

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
)

const regionLabel = "region"

func labelledCluster(name, set, region string) *clusterv1.ManagedCluster {
	labels := map[string]string{regionLabel: region}
	if set != "" {
		labels[clusterv1beta2.ClusterSetLabel] = set
	}
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func exclusive(name string) *clusterv1beta2.ManagedClusterSet {
	return selecting(name, clusterv1beta2.ExclusiveClusterSetLabel, nil)
}

func byRegion(name, region string) *clusterv1beta2.ManagedClusterSet {
	return selecting(name, clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchLabels: map[string]string{regionLabel: region}})
}

func selecting(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: clusterv1beta2.ManagedClusterSetSpec{
			ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector},
		},
	}
}

func bound(namespace, set string) *clusterv1beta2.ManagedClusterSetBinding {
	return &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set, Generation: 1},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
}

// deleted returns the object, marked as being deleted.
func deleted[T metav1.Object](object T) T {
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
	object.SetFinalizers([]string{"example.com/hold"})
	return object
}

// hubWith is a hub with the given objects, and its Resolver.
type hubWith struct {
	client    *fake.Clientset
	informers externalversions.SharedInformerFactory
	resolver  *Resolver
}

func newHub(t *testing.T, objects ...runtime.Object) *hubWith {
	t.Helper()
	h := &hubWith{client: fake.NewSimpleClientset(objects...)}
	h.informers = externalversions.NewSharedInformerFactory(h.client, 0)
	sets := h.informers.Cluster().V1beta2()
	var err error
	h.resolver, err = NewResolver(sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), h.informers.Cluster().V1().ManagedClusters())
	if err != nil {
		t.Fatal(err)
	}
	h.informers.Start(t.Context().Done())
	t.Cleanup(h.informers.Shutdown)
	for informer, synced := range h.informers.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("informer of %s has not synced", informer)
		}
	}
	return h
}

func TestSelects(t *testing.T) {
	north := labelledCluster("c", "prod", "north")
	tests := map[string]struct {
		set     *clusterv1beta2.ManagedClusterSet
		cluster *clusterv1.ManagedCluster
		want    bool
	}{
		"label of the set":                       {exclusive("prod"), north, true},
		"another set":                            {exclusive("test"), north, false},
		"default type is the label of the set":   {selecting("prod", "", nil), north, true},
		"cluster without a label":                {exclusive("prod"), labelledCluster("c", "", "north"), false},
		"cluster without a label is in default":  {exclusive("default"), labelledCluster("c", "", "north"), true},
		"label selector":                         {byRegion("n", "north"), north, true},
		"label selector of other labels":         {byRegion("s", "south"), north, false},
		"empty selector":                         {selecting("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), north, true},
		"empty selector, cluster without labels": {selecting("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), &clusterv1.ManagedCluster{}, true},
		"missing selector selects none":          {selecting("none", clusterv1beta2.LabelSelector, nil), north, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Selects(test.set, test.cluster)
			if err != nil || got != test.want {
				t.Errorf("Selects() = %t, %v, want %t", got, err, test.want)
			}
		})
	}
	for _, set := range []*clusterv1beta2.ManagedClusterSet{
		selecting("s", "Legacy", nil),
		selecting("s", clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}),
	} {
		if _, err := Selects(set, north); err == nil {
			t.Errorf("Selects(%+v) = nil, want an error", set.Spec)
		}
	}
}

func TestResolver(t *testing.T) {
	h := newHub(t,
		labelledCluster("c3", "prod", "south"), labelledCluster("c1", "prod", "north"), labelledCluster("c2", "", "north"),
		labelledCluster("c4", "leaving", "west"),
		exclusive("prod"), byRegion("north", "north"), exclusive("nobody"), deleted(exclusive("leaving")), selecting("unclear", "Legacy", nil),
		bound("both", "prod"), bound("both", "north"), bound("both", "absent"), exclusive("default"), bound("rest", "default"),
		bound("one", "prod"), bound("empty", "nobody"), bound("dangling", "absent"), bound("deleted-set", "leaving"),
		deleted(bound("unbinding", "prod")), bound("broken", "unclear"))

	for namespace, want := range map[string]struct {
		names []string
		bound bool
	}{
		"both":        {[]string{"c1", "c2", "c3"}, true},
		"one":         {[]string{"c1", "c3"}, true},
		"rest":        {[]string{"c2"}, true},
		"empty":       {nil, true},
		"dangling":    {nil, false},
		"deleted-set": {[]string{"c4"}, true},
		"unbinding":   {nil, false},
		"unbound":     {nil, false},
	} {
		names, bound, err := h.resolver.Clusters(namespace)
		if err != nil || bound != want.bound || !slices.Equal(names, want.names) {
			t.Errorf("Clusters(%s) = %v, %t, %v, want %v, %t", namespace, names, bound, err, want.names, want.bound)
		}
	}
	if names, _, err := h.resolver.Clusters("broken"); err == nil {
		t.Errorf("Clusters() with an invalid selector = %v, want an error", names)
	}

	for set, want := range map[string][]string{
		"prod": {"both", "one", "unbinding"}, "north": {"both"}, "absent": {"both", "dangling"}, "unknown": nil,
	} {
		if got := h.resolver.NamespacesOf(set); !slices.Equal(got, want) {
			t.Errorf("NamespacesOf(%s) = %v, want %v", set, got, want)
		}
	}
	for _, test := range []struct {
		cluster *clusterv1.ManagedCluster
		want    []string
	}{
		{labelledCluster("c1", "prod", "north"), []string{"both", "one", "unbinding"}},
		{labelledCluster("c2", "", "north"), []string{"both", "rest"}},
		{labelledCluster("c5", "test", "west"), nil},
	} {
		if got := h.resolver.Namespaces(test.cluster); !slices.Equal(got, test.want) {
			t.Errorf("Namespaces(%v) = %v, want %v", test.cluster.Labels, got, test.want)
		}
	}
}
