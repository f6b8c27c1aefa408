package managedserviceaccount

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// TestMembershipFeedKeepsIgnore checks that status reports of clusters, one a minute for each, do not
// reconcile every account of their sets.
func TestMembershipFeedKeepsIgnore(t *testing.T) {
	client, err := versioned.NewForConfig(&rest.Config{Host: "https://127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	factory := externalversions.NewSharedInformerFactory(client, 0)
	clusters := factory.Cluster().V1().ManagedClusters()
	r, err := NewReplicaController(client.AuthenticationV1beta1(), nil, ReplicaInformers{
		Accounts: factory.Authentication().V1beta1().ManagedServiceAccounts(),
		Clusters: clusters.Lister(),
		Membership: []reconcile.Feed{{
			Informer: clusters.Informer(),
			Keys:     func(any) []cache.ObjectName { return nil },
			Ignore:   func(_, _ any) bool { return true },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	last := r.Feeds[len(r.Feeds)-1]
	if last.Ignore == nil || !last.Ignore(&clusterv1.ManagedCluster{}, &clusterv1.ManagedCluster{}) {
		t.Error("Ignore() of the membership feed = false, want true")
	}
}
