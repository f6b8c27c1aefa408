package managedserviceaccount

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	accountlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

func secretRules(names ...string) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}}
	if len(names) > 0 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: names})
	}
	return rules
}

// TestPause checks that only updates that add names are postponed.
func TestPause(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	a := &AgentRoleController{clock: clock, written: map[string]time.Time{}}
	const cluster = "cluster1"
	more := secretRules("a", "b", "c")
	if left := a.pause(cluster, secretRules("a"), more); left != 0 {
		t.Errorf("pause() of the first write = %s, want 0", left)
	}
	if left := a.pause(cluster, secretRules("a"), more); left != 3*pausePerName {
		t.Errorf("pause() of the next write = %s, want %s", left, 3*pausePerName)
	}
	if left := a.pause("cluster2", secretRules(), more); left != 0 {
		t.Errorf("pause() of another cluster = %s, want 0", left)
	}
	wide := secretRules("a")
	wide[1].Verbs = []string{"*"}
	for name, present := range map[string][]rbacv1.PolicyRule{
		"an additional name": secretRules("a", "foreign"),
		"an additional verb": wide,
		"an additional rule": append(secretRules("a"), rbacv1.PolicyRule{Verbs: []string{"*"}}),
		"only another name":  secretRules("foreign"),
	} {
		if left := a.pause(cluster, present, more); left != 0 {
			t.Errorf("pause() with %s = %s, want 0", name, left)
		}
	}
	clock.SetTime(clock.Now().Add(3 * pausePerName))
	if left := a.pause(cluster, secretRules("a"), more); left != 0 {
		t.Errorf("pause() after the interval = %s, want 0", left)
	}
}

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
				want = secretRules("a")
				want[1].Verbs = []string{"get", "patch", "update"}
			}
			if rules, err := a.rules("cluster1"); err != nil || !equality.Semantic.DeepEqual(rules, want) {
				t.Errorf("rules() = %v, %v, want %v", rules, err, want)
			}
		})
	}
}
