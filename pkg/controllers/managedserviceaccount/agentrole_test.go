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
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
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
			informers := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
			clusters, accounts := informers.Cluster().V1().ManagedClusters(), informers.Authentication().V1beta1().ManagedServiceAccounts()
			secrets := cache.NewSharedIndexInformer(nil, &metav1.PartialObjectMetadata{}, 0, nil)
			if test.cluster != nil {
				test.cluster.Name = "cluster1"
				if err := clusters.Informer().GetStore().Add(test.cluster); err != nil {
					t.Fatal(err)
				}
			}
			// Only the agent's own Secret is readable: the Secret with the name of the other account has another owner.
			for name, owner := range map[string]types.UID{"a": "uid-of-a", "b": "uid-of-another"} {
				meta := metav1.ObjectMeta{Namespace: "cluster1", Name: name, UID: types.UID("uid-of-" + name)}
				if err := accounts.Informer().GetStore().Add(&authenticationv1beta1.ManagedServiceAccount{ObjectMeta: meta}); err != nil {
					t.Fatal(err)
				}
				meta.OwnerReferences = []metav1.OwnerReference{{Name: name, UID: owner}}
				if err := secrets.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: meta}); err != nil {
					t.Fatal(err)
				}
			}
			a := &AgentRoleController{AgentRoleInformers: AgentRoleInformers{Clusters: clusters, Accounts: accounts, Secrets: Secrets{Informer: secrets}}}
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
