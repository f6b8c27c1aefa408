package registration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	versionedfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// cachedAccess returns an Access with synced caches of the hub.
func cachedAccess(t *testing.T, hub *fake.Clientset) *Access {
	t.Helper()
	factory := kubeinformers.NewSharedInformerFactory(hub, 0)
	access := NewAccess(hub, factory)
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	for informer, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("synced informer %s = false, want true", informer)
		}
	}
	return access
}

// uncachedAccess returns an Access whose caches are empty.
func uncachedAccess(hub *fake.Clientset) *Access {
	return NewAccess(hub, kubeinformers.NewSharedInformerFactory(hub, 0))
}

func writes(client interface{ Actions() []clienttesting.Action }) (verbs []string) {
	for _, action := range client.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			verbs = append(verbs, verb+" "+action.GetResource().Resource)
		}
	}
	return verbs
}

// Clusters with complete access cause no requests to the hub.
func TestUnchangedAccessCostsNoRequest(t *testing.T) {
	const clusters = 100
	hub := fake.NewClientset()
	live := uncachedAccess(hub)
	for i := range clusters {
		if err := live.Grant(t.Context(), fmt.Sprintf("cluster%d", i), Agents{Groups: clusterv1.AgentGroups(fmt.Sprintf("cluster%d", i))[:1]}, 60); err != nil {
			t.Fatal(err)
		}
	}
	access := cachedAccess(t, hub)
	hub.ClearActions()
	for i := range clusters {
		name := fmt.Sprintf("cluster%d", i)
		if complete, err := access.Granted(name, Agents{Groups: clusterv1.AgentGroups(name)[:1]}, 60); err != nil || !complete {
			t.Fatalf("Granted(%s) = %t, %v, want true", name, complete, err)
		}
		if err := access.Grant(t.Context(), name, Agents{Groups: clusterv1.AgentGroups(name)[:1]}, 60); err != nil {
			t.Fatal(err)
		}
	}
	if made := writes(hub); len(made) > 0 {
		t.Errorf("requests to the hub = %d, for example %s, want 0", len(made), made[0])
	}
}

// Grant writes only the objects that differ.
func TestOnlyDifferencesAreWritten(t *testing.T) {
	hub := fake.NewClientset()
	if err := uncachedAccess(hub).Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	if err := hub.RbacV1().RoleBindings("cluster1").Delete(t.Context(), bindingName("cluster1", "inventory"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	access := cachedAccess(t, hub)
	hub.ClearActions()
	if complete, err := access.Granted("cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil || complete {
		t.Errorf("Granted() without a binding = %t, %v, want false", complete, err)
	}
	if made := writes(hub); len(made) > 0 {
		t.Errorf("writes of Granted() = %v, want none", made)
	}
	if err := access.Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	if made := writes(hub); len(made) != 1 || made[0] != "create rolebindings" {
		t.Errorf("writes of Grant() without a binding = %v, want create rolebindings", made)
	}
}

// After an upgrade, a change of the driver or the removal of a driver, the subjects of
// both bindings are exactly the groups that the agents need.
func TestBindingsHaveTheGroupsOfTheDriver(t *testing.T) {
	both := clusterv1.AgentGroups("cluster1")
	for name, step := range map[string]struct{ before, groups, want []string }{
		"upgrade":             {both, both[:1], both[:1]},
		"csr to access entry": {both[:1], both[1:], both[1:]},
		"driver switched off": {both[1:], nil, both[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			hub := fake.NewClientset()
			access := uncachedAccess(hub)
			for _, groups := range [][]string{step.before, step.groups} {
				if err := access.Grant(t.Context(), "cluster1", Agents{Groups: groups}, 60); err != nil {
					t.Fatal(err)
				}
			}
			binding, err := hub.RbacV1().ClusterRoleBindings().Get(t.Context(), accessName("cluster1"), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if want := agentSubjects(step.want); !equality.Semantic.DeepEqual(binding.Subjects, want) {
				t.Errorf("ClusterRoleBinding subjects = %v, want %v", binding.Subjects, want)
			}
			for _, role := range agentRoles {
				binding, err := hub.RbacV1().RoleBindings("cluster1").Get(t.Context(), bindingName("cluster1", role), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if want := agentSubjects(step.want); !equality.Semantic.DeepEqual(binding.Subjects, want) {
					t.Errorf("RoleBinding %s subjects = %v, want %v", role, binding.Subjects, want)
				}
			}
		})
	}
}

// An outdated cache causes neither errors nor wrong writes.
func TestOutdatedCache(t *testing.T) {
	hub := fake.NewClientset()
	access := cachedAccess(t, hub)
	// The caches may not contain the new objects when Grant runs again.
	if err := uncachedAccess(hub).Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	if err := access.Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Errorf("Grant() of existing access = %v, want no error", err)
	}
	hub.PrependReactor("update", "clusterroles", onceConflict())
	role, err := hub.RbacV1().ClusterRoles().Get(t.Context(), accessName("cluster1"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = nil
	if err := hub.Tracker().Update(rbacv1.SchemeGroupVersion.WithResource("clusterroles"), role, ""); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the ClusterRole is repaired after a conflict", func(ctx context.Context) error {
		if err := access.Grant(ctx, "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
			return err
		}
		role, err := hub.RbacV1().ClusterRoles().Get(ctx, accessName("cluster1"), metav1.GetOptions{})
		if err == nil && len(role.Rules) == 0 {
			err = errors.New("it has no rules")
		}
		return err
	})
}

func onceConflict() clienttesting.ReactionFunc {
	done := false
	return func(clienttesting.Action) (bool, runtime.Object, error) {
		if done {
			return false, nil, nil
		}
		done = true
		return true, nil, apierrors.NewConflict(rbacv1.Resource("clusterroles"), "cluster1", errors.New("changed"))
	}
}

// A failure does not stop the rest of the revocation, and Revoke returns it.
func TestRevokeContinuesAfterAnError(t *testing.T) {
	hub := fake.NewClientset()
	access := uncachedAccess(hub)
	if err := access.Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	broken := true
	for _, what := range []struct{ verb, resource string }{{"update", "clusterroles"}, {"delete", "leases"}} {
		hub.PrependReactor(what.verb, what.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return broken, nil, errors.New("no " + what.verb)
		})
	}
	err := access.Revoke(t.Context(), "cluster1")
	if err == nil || !strings.Contains(err.Error(), "no update") || !strings.Contains(err.Error(), "no delete") {
		t.Errorf("Revoke() with failures = %v, want both failures", err)
	}
	bindings, err := hub.RbacV1().RoleBindings("cluster1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(bindings.Items) > 0 {
		t.Errorf("RoleBindings after Revoke() = %d, %v, want 0", len(bindings.Items), err)
	}
	if _, err := hub.RbacV1().ClusterRoleBindings().Get(t.Context(), accessName("cluster1"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() of the ClusterRoleBinding after Revoke() = %v, want not found", err)
	}
	broken = false
	if err := access.Revoke(t.Context(), "cluster1"); err != nil {
		t.Errorf("second Revoke() = %v, want no error", err)
	}
}

// groupsDriver is a Driver that only names the groups of agents.
type groupsDriver struct{ Driver }

func (groupsDriver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

func (groupsDriver) Groups(r *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(r.Name)[:1]
}

func (groupsDriver) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule {
	return nil
}

// A denied cluster without access causes no requests to the hub, and loses access that it gets nevertheless.
func TestDeniedClusterCostsNoRequest(t *testing.T) {
	hub := fake.NewClientset()
	live, agents := uncachedAccess(hub), Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}
	if err := errors.Join(live.Grant(t.Context(), "cluster1", agents, 60), live.Revoke(t.Context(), "cluster1")); err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "1"}}
	cluster.Status.Conditions = []metav1.Condition{
		condition(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied, DeniedMessage(cluster.Status.Acceptance)),
	}
	record := &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "2"},
		Spec:       registerv1alpha1.ManagedClusterRegistrationSpec{Driver: registerv1alpha1.DriverCSR, ManagedClusterUID: "1"},
		Status: registerv1alpha1.ManagedClusterRegistrationStatus{Conditions: []metav1.Condition{
			condition(registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied, DeniedMessage(cluster.Status.Acceptance)),
			condition(registerv1alpha1.RegistrationCleanedUp, metav1.ConditionTrue, registerv1alpha1.ReasonCleanedUp, "All access of the cluster is removed."),
		}},
	}
	server := versionedfake.NewSimpleClientset(cluster)
	c := &Controller{Options: Options{Clusters: server.ClusterV1(), Access: cachedAccess(t, hub), Drivers: []Driver{groupsDriver{}}}}
	hub.ClearActions()
	if _, err := c.deny(t.Context(), cluster, record); err != nil {
		t.Fatal(err)
	}
	if made := append(writes(hub), writes(server)...); len(made) > 0 {
		t.Errorf("requests for a denied cluster = %v, want none", made)
	}

	if err := live.Grant(t.Context(), "cluster1", agents, 60); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the cluster has lost its access again", func(ctx context.Context) error {
		if _, err := c.deny(ctx, cluster, record); err != nil {
			return err
		}
		bindings, err := hub.RbacV1().RoleBindings("cluster1").List(ctx, metav1.ListOptions{})
		if err == nil && len(bindings.Items) > 0 {
			err = fmt.Errorf("it has %d RoleBindings", len(bindings.Items))
		}
		return err
	})
}

// If the server ends between the two writes of a grant, or cannot narrow the role, a denied cluster can read its
// denial nevertheless.
func TestDeniedClusterWithoutBinding(t *testing.T) {
	hub := fake.NewClientset()
	groups := clusterv1.AgentGroups("cluster1")[:1]
	broken := true
	hub.PrependReactor("create", "clusterrolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
		return broken, nil, errors.New("ended")
	})
	if err := uncachedAccess(hub).Grant(t.Context(), "cluster1", Agents{Groups: groups}, 60); err == nil {
		t.Fatal("Grant() without its last writes = nil, want an error")
	}
	broken = false
	access := cachedAccess(t, hub)
	if err := access.Revoke(t.Context(), "cluster1"); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"cluster1", "never-granted"} {
		if err := access.Regroup(t.Context(), cluster, groups); err != nil {
			t.Fatal(err)
		}
	}
	bindings, err := hub.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(bindings.Items) != 1 || !equality.Semantic.DeepEqual(bindings.Items[0].Subjects, agentSubjects(groups)) {
		t.Errorf("ClusterRoleBindings of denied clusters = %v, %v, want one of cluster1 for %v", bindings.Items, err, groups)
	}
}

// A finalizer of another writer does not keep a binding in force.
func TestRevokeOfABindingWithFinalizers(t *testing.T) {
	hub := fake.NewClientset()
	access, bindings, name := uncachedAccess(hub), hub.RbacV1().RoleBindings("cluster1"), bindingName("cluster1", workRole)
	if err := access.Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60); err != nil {
		t.Fatal(err)
	}
	binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding.Finalizers = append(binding.Finalizers, "example.com/hold")
	if _, err := bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Unlike an API server, the fake hub deletes objects with finalizers.
	hub.PrependReactor("delete", "rolebindings", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	if err := access.Revoke(t.Context(), "cluster1"); err != nil {
		t.Fatal(err)
	}
	binding, err = bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(binding.Subjects) > 0 || !slices.Equal(binding.Finalizers, []string{"example.com/hold"}) {
		t.Errorf("binding after Revoke() = %+v, %v, want no subjects and only the finalizer example.com/hold", binding, err)
	}
}

// Grant creates no objects in a namespace that is being deleted.
func TestTerminatingNamespace(t *testing.T) {
	now := metav1.Now()
	hub := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}})
	err := uncachedAccess(hub).Grant(t.Context(), "cluster1", Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}, 60)
	if !errors.Is(err, reconcile.ErrTerminating) {
		t.Errorf("Grant() = %v, want %v", err, reconcile.ErrTerminating)
	}
	bindings, err := hub.RbacV1().RoleBindings("cluster1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(bindings.Items) > 0 {
		t.Errorf("created RoleBindings = %d, %v, want 0", len(bindings.Items), err)
	}
}

// Objects of a cluster have the labels of the server, and keep the labels of others.
func TestLabels(t *testing.T) {
	hub := fake.NewClientset()
	access := uncachedAccess(hub)
	agents := Agents{Groups: clusterv1.AgentGroups("cluster1")[:1]}
	if err := access.Grant(t.Context(), "cluster1", agents, 60); err != nil {
		t.Fatal(err)
	}
	role, err := hub.RbacV1().ClusterRoles().Get(t.Context(), accessName("cluster1"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Labels["theirs"] = "stays"
	if _, err := hub.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	access.Labels = map[string]string{"example.com/team": "blue"}
	for range 2 {
		if err := access.Grant(t.Context(), "cluster1", agents, 60); err != nil {
			t.Fatal(err)
		}
	}
	role, err = hub.RbacV1().ClusterRoles().Get(t.Context(), accessName("cluster1"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"theirs": "stays", "example.com/team": "blue", clusterv1.ClusterNameLabel: "cluster1"}
	if !maps.Equal(role.Labels, want) {
		t.Errorf("labels = %v, want %v", role.Labels, want)
	}
	access = cachedAccess(t, hub)
	access.Labels = map[string]string{"example.com/team": "blue"}
	if complete, err := access.Granted("cluster1", agents, 60); err != nil || !complete {
		t.Errorf("Granted() = %v, %v, want true", complete, err)
	}
}
