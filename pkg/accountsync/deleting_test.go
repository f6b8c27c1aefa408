package accountsync

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

// The agent of a cluster that is denied, or deleted however long that takes, reaches no Secret.
func TestNoRulesOfDeniedClusters(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		any     bool
	}{
		"accepted": {&clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, true},
		"denied":   {&clusterv1.ManagedCluster{}, false},
		"deleted": {&clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		}, false},
		"gone": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			clusters := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			accounts := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			secrets := cache.NewSharedIndexInformer(nil, &metav1.PartialObjectMetadata{}, 0, nil)
			if test.cluster != nil {
				test.cluster.Name = "cluster1"
				if err := clusters.Add(test.cluster); err != nil {
					t.Fatal(err)
				}
			}
			if err := accounts.Add(&authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			a := &Access{
				clusters: clusterlisters.NewManagedClusterLister(clusters),
				accounts: accountlisters.NewManagedServiceAccountLister(accounts), secrets: Secrets{Informer: secrets},
			}
			if rules, err := a.rules("cluster1"); err != nil || len(rules) > 0 != test.any {
				t.Errorf("got %v, %v", rules, err)
			}
		})
	}
}
