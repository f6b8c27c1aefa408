package managedserviceaccount

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

// TestRulesOfClusters checks that only accepted clusters get access to Secrets, and only to those of their accounts.
func TestRulesOfClusters(t *testing.T) {
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
		"missing": {nil, false},
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
			// Only the agent's own Secret is readable: the Secret with the name of the other account has another owner.
			for name, owner := range map[string]types.UID{"a": "uid-of-a", "b": "uid-of-another"} {
				meta := metav1.ObjectMeta{Namespace: "cluster1", Name: name, UID: types.UID("uid-of-" + name)}
				if err := accounts.Add(&authenticationv1beta1.ManagedServiceAccount{ObjectMeta: meta}); err != nil {
					t.Fatal(err)
				}
				meta.OwnerReferences = []metav1.OwnerReference{{Name: name, UID: owner}}
				if err := secrets.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: meta}); err != nil {
					t.Fatal(err)
				}
			}
			a := &AgentRoleController{
				clusters: clusterlisters.NewManagedClusterLister(clusters),
				accounts: accountlisters.NewManagedServiceAccountLister(accounts), secrets: Secrets{Informer: secrets},
			}
			var want []rbacv1.PolicyRule
			if test.any {
				secrets := []string{"secrets"}
				want = []rbacv1.PolicyRule{
					{APIGroups: []string{""}, Resources: secrets, Verbs: []string{"create"}},
					{APIGroups: []string{""}, Resources: secrets, ResourceNames: []string{"a"}, Verbs: []string{"get", "patch", "update"}},
				}
			}
			if rules, err := a.rules("cluster1"); err != nil || !equality.Semantic.DeepEqual(rules, want) {
				t.Errorf("rules() = %v, %v, want %v", rules, err, want)
			}
		})
	}
}
