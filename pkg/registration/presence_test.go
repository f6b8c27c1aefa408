package registration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

// TestPresence checks which namespaces may contain objects that wait for their cluster.
func TestPresence(t *testing.T) {
	hub := fake.NewSimpleClientset(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	// The resource has not the name of the kind.
	leaving := &registerv1alpha1.ManagedClusterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}
	if err := hub.Tracker().Create(registerv1alpha1.SchemeGroupVersion.WithResource("managedclusters"), leaving, ""); err != nil {
		t.Fatal(err)
	}
	cached := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := cached.Add(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cached"}}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cluster  string
		required bool
		exists   bool
		refused  string
	}{
		"cached":                        {cluster: "cached", exists: true},
		"not cached yet":                {cluster: "new", exists: true},
		"never seen":                    {cluster: "later"},
		"never seen, not allowed":       {cluster: "later", required: true, refused: "there is no ManagedCluster"},
		"exists, waiting not allowed":   {cluster: "new", required: true, exists: true},
		"name that no cluster can have": {cluster: "kube-system", refused: "reserved for the hub"},
		"deleted, still cleaned up":     {cluster: "leaving", refused: "are being removed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Presence{
				Clusters: hub.ClusterV1(), CachedClusters: clusterlisters.NewManagedClusterLister(cached),
				Registrations: hub.RegisterV1alpha1(), Required: test.required,
			}
			exists, refused, err := p.Check(t.Context(), test.cluster)
			if exists != test.exists || err != nil || !strings.Contains(refused, test.refused) || refused != "" && test.refused == "" {
				t.Errorf("Check(%s) = %t, %q, %v, want %t, %q", test.cluster, exists, refused, err, test.exists, test.refused)
			}
		})
	}
}
