package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	clusterViewRole = "open-cluster-management:clusterview:use"
	cluster2        = "cluster2"
	// The hub shows deployer and missing. Managed clusters have deployer and hidden.
	deployer, missing, hidden = "deployer", "missing", "hidden"
)

// permissions are the contents of UserPermissions by name.
type permissions map[string]clusterviewv1alpha1.UserPermissionStatus

var (
	deployRules = []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}}
	everything  = []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	readAll     = []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
)

// held returns the content of a UserPermission.
func held(rules []rbacv1.PolicyRule, bindings ...clusterviewv1alpha1.ClusterBinding) clusterviewv1alpha1.UserPermissionStatus {
	return clusterviewv1alpha1.UserPermissionStatus{Bindings: bindings, ClusterRoleDefinition: clusterviewv1alpha1.ClusterRoleDefinition{Rules: rules}}
}

// in returns the binding of a role in namespaces of a cluster, or in the whole cluster without namespaces.
func in(cluster string, namespaces ...string) clusterviewv1alpha1.ClusterBinding {
	if len(namespaces) == 0 {
		return clusterviewv1alpha1.ClusterBinding{Cluster: cluster, Scope: clusterviewv1alpha1.ScopeCluster, Namespaces: []string{"*"}}
	}
	return clusterviewv1alpha1.ClusterBinding{Cluster: cluster, Scope: clusterviewv1alpha1.ScopeNamespace, Namespaces: namespaces}
}

// bindOn binds a ClusterRole of a cluster, in the whole cluster if the namespace is empty. The returned function deletes
// the binding.
func bindOn(t *testing.T, client kubernetes.Interface, namespace, role string, subject rbacv1.Subject) (unbind func()) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	remove := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if namespace == "" {
		bindings := client.RbacV1().ClusterRoleBindings()
		b := framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{}))(t)
		return func() { remove(bindings.Delete(t.Context(), b.Name, metav1.DeleteOptions{})) }
	}
	bindings := client.RbacV1().RoleBindings(namespace)
	b := framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{}))(t)
	return func() { remove(bindings.Delete(t.Context(), b.Name, metav1.DeleteOptions{})) }
}

func createClusterRole(t *testing.T, client kubernetes.Interface, name string, labels map[string]string) {
	t.Helper()
	framework.CreateClusterRole(t, client, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Rules: deployRules})
}

// mayCreate allows a caller to create a resource in a namespace of the hub. The returned function revokes it.
func mayCreate(t *testing.T, caller *framework.Caller, namespace, group, resource string) (revoke func()) {
	t.Helper()
	return caller.May(t, namespace, rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{group}, Resources: []string{resource}})
}

// listed waits until the list of a caller has the wanted content, and returns its version.
func listed(t *testing.T, caller *framework.Caller, want permissions) (version string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the permissions of %s are listed", caller.Name), func(ctx context.Context) error {
		list, err := caller.OCM.ClusterviewV1alpha1().UserPermissions().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := permissions{}
		for i := range list.Items {
			got[list.Items[i].Name] = list.Items[i].Status
		}
		if framework.ToJSON(got) != framework.ToJSON(want) {
			return fmt.Errorf("permissions = %s, want %s", framework.ToJSON(got), framework.ToJSON(want))
		}
		version = list.ResourceVersion
		return nil
	})
	return version
}

// follow reads events until the client knows the wanted content.
func follow(t *testing.T, events <-chan watch.Event, known permissions, what string, want permissions) {
	t.Helper()
	deadline := time.NewTimer(await.Patience)
	defer deadline.Stop()
	for framework.ToJSON(known) != framework.ToJSON(want) {
		select {
		case event, open := <-events:
			object, ok := event.Object.(*clusterviewv1alpha1.UserPermission)
			switch {
			case !open || !ok:
				t.Fatalf("%s: the watch sent %v and is open: %t", what, event, open)
			case event.Type == watch.Deleted:
				delete(known, object.Name)
			default:
				known[object.Name] = object.Status
			}
		case <-deadline.C:
			t.Fatalf("%s: the watch showed %s, want %s", what, framework.ToJSON(known), framework.ToJSON(want))
		}
	}
}

// TestUserPermissions binds ClusterRoles on two managed clusters, and reads what users see of it on the hub.
func TestUserPermissions(t *testing.T) {
	f := framework.OwnFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1, cluster2}})
	first, second := f.ManagedClient, framework.Must(kubernetes.NewForConfig(f.Members[1].AdminConfig()))(t)
	shown := map[string]string{clusterviewv1alpha1.DiscoverableLabel: "true"}
	createClusterRole(t, f.HubClient, deployer, shown)
	createClusterRole(t, f.HubClient, missing, shown)
	createClusterRole(t, f.HubClient, hidden, map[string]string{clusterviewv1alpha1.DiscoverableLabel: "false"})
	for _, client := range []kubernetes.Interface{first, second} {
		createClusterRole(t, client, deployer, nil)
		createClusterRole(t, client, hidden, nil)
	}
	alice, bob := framework.NewCaller(t, f.Hub, "alice", "developers"), framework.NewCaller(t, f.Hub, "bob")
	developers := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "developers"}
	for _, caller := range []*framework.Caller{alice, bob} {
		bindEverywhere(t, caller, clusterViewRole)
	}

	everywhere := bindOn(t, first, "", deployer, alice.Subject)
	byName := bindOn(t, first, "default", deployer, alice.Subject)
	bindOn(t, first, "", missing, alice.Subject)
	bindOn(t, first, "", hidden, alice.Subject)
	bindOn(t, second, "kube-system", deployer, developers)
	bindOn(t, second, "default", deployer, developers)
	bindOn(t, second, "default", deployer, alice.Subject)
	listed(t, alice, permissions{deployer: held(deployRules, in(framework.Cluster1), in(cluster2, "default", "kube-system"))})
	listed(t, bob, permissions{})

	t.Run("get", func(t *testing.T) {
		got, err := alice.OCM.ClusterviewV1alpha1().UserPermissions().Get(t.Context(), deployer, metav1.GetOptions{})
		if err != nil || len(got.Status.Bindings) != 2 {
			t.Errorf("get of %s = %s, %v, want two bindings", deployer, framework.ToJSON(got.Status), err)
		}
		for name, caller := range map[string]*framework.Caller{deployer: bob, missing: alice, hidden: alice, clusterviewv1alpha1.ViewRole: alice} {
			if _, err := caller.OCM.ClusterviewV1alpha1().UserPermissions().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get of %s by %s: error = %v, want 404", name, caller.Name, err)
			}
		}
		stranger := framework.NewCaller(t, f.Hub, "stranger")
		if _, err := stranger.OCM.ClusterviewV1alpha1().UserPermissions().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list of a user without the ClusterRole %s: error = %v, want 403", clusterViewRole, err)
		}
		out, err := alice.Kubectl(t, "", "get", "userpermissions")
		if want := []string{"NAME", "BINDINGS", deployer, framework.Cluster1 + "(*)", cluster2 + "(default,kube-system)"}; err != nil || !slices.Equal(strings.Fields(out), want) {
			t.Errorf("kubectl get userpermissions = %s, %v, want %v", out, err, want)
		}
	})
	t.Run("kubevirtprojects", func(t *testing.T) { kubevirtProjects(t, first, second, alice, bob, developers) })

	mayCreate(t, alice, framework.Cluster1, "view.open-cluster-management.io", "managedclusterviews")
	unview := mayCreate(t, alice, cluster2, "view.open-cluster-management.io", "managedclusterviews")
	deploys := held(deployRules, in(framework.Cluster1), in(cluster2, "default", "kube-system"))
	known := permissions{
		deployer: deploys, clusterviewv1alpha1.ViewRole: held(readAll, in(framework.Cluster1), in(cluster2)),
	}
	version := listed(t, alice, known)
	w := framework.Must(alice.OCM.ClusterviewV1alpha1().UserPermissions().Watch(t.Context(), metav1.ListOptions{ResourceVersion: version}))(t)
	defer w.Stop()
	await := func(what string, want permissions) {
		t.Helper()
		follow(t, w.ResultChan(), known, what, want)
	}

	mayCreate(t, alice, framework.Cluster1, "action.open-cluster-management.io", "managedclusteractions")
	admin := held(everything, in(framework.Cluster1))
	await("alice administers the first cluster", permissions{
		deployer: deploys, clusterviewv1alpha1.AdminRole: admin, clusterviewv1alpha1.ViewRole: held(readAll, in(cluster2)),
	})
	unview()
	await("alice may no longer view the second cluster", permissions{deployer: deploys, clusterviewv1alpha1.AdminRole: admin})

	everywhere()
	await("the ClusterRoleBinding of the first cluster is deleted", permissions{
		deployer: held(deployRules, in(framework.Cluster1, "default"), in(cluster2, "default", "kube-system")), clusterviewv1alpha1.AdminRole: admin,
	})
	agent := f.Members[1].Agent
	args := agent.Args
	agent.Args = append(slices.Clone(args), "--inventory-exclude=rbac.authorization.k8s.io/clusterrolebindings")
	restart := func() {
		t.Helper()
		if err := agent.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	await("the second cluster is unknown", permissions{deployer: held(deployRules, in(framework.Cluster1, "default")), clusterviewv1alpha1.AdminRole: admin})
	agent.Args = args
	restart()
	await("the second cluster is known again", permissions{
		deployer: held(deployRules, in(framework.Cluster1, "default"), in(cluster2, "default", "kube-system")), clusterviewv1alpha1.AdminRole: admin,
	})
	byName()
	await("the last binding of the first cluster is deleted", permissions{
		deployer: held(deployRules, in(cluster2, "default", "kube-system")), clusterviewv1alpha1.AdminRole: admin,
	})
	unlabel := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, clusterviewv1alpha1.DiscoverableLabel)
	framework.Must(f.HubClient.RbacV1().ClusterRoles().Patch(t.Context(), deployer, types.MergePatchType, unlabel, metav1.PatchOptions{}))(t)
	await("the ClusterRole has no label", permissions{clusterviewv1alpha1.AdminRole: admin})
	listed(t, alice, known)
}

// kubevirtProjects binds roles of KubeVirt: in namespaces of the first cluster, and in the whole second one.
func kubevirtProjects(t *testing.T, first, second kubernetes.Interface, alice, bob *framework.Caller, developers rbacv1.Subject) {
	for _, client := range []kubernetes.Interface{first, second} {
		for _, role := range []string{"kubevirt.io:admin", "kubevirt.io:view"} {
			createClusterRole(t, client, role, nil)
		}
	}
	bindOn(t, first, "kube-system", "kubevirt.io:view", developers)
	bindOn(t, first, "default", "kubevirt.io:admin", alice.Subject)
	bindOn(t, first, "default", "kubevirt.io:view", developers)
	bindOn(t, second, "", "kubevirt.io:admin", developers)
	bindOn(t, second, "default", "kubevirt.io:admin", alice.Subject)
	projects := func(ctx context.Context, caller *framework.Caller, options metav1.ListOptions) ([]string, error) {
		list, err := caller.OCM.ClusterviewV1().Projects().List(ctx, options)
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, item := range list.Items {
			names = append(names, item.Labels[clusterviewv1.ProjectClusterLabel]+"/"+item.Labels[clusterviewv1.ProjectNameLabel])
		}
		return names, nil
	}
	framework.Eventually(t, "alice sees her projects", func(ctx context.Context) error {
		got, err := projects(ctx, alice, metav1.ListOptions{})
		if want := []string{framework.Cluster1 + "/default", framework.Cluster1 + "/kube-system", cluster2 + "/" + clusterviewv1.AllProjects}; err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("projects = %v, want %v", got, want)
		}
		return err
	})
	if got, err := projects(t.Context(), bob, metav1.ListOptions{}); err != nil || len(got) > 0 {
		t.Errorf("projects of bob = %v, %v, want none", got, err)
	}
	if got, err := projects(t.Context(), alice, metav1.ListOptions{LabelSelector: "cluster=" + cluster2}); err != nil || len(got) != 1 {
		t.Errorf("projects of %s = %v, %v, want one", cluster2, got, err)
	}
	out, err := alice.Kubectl(t, "", "get", "kubevirtprojects")
	want := []string{"CLUSTER", "PROJECT", framework.Cluster1, "default", framework.Cluster1, "kube-system", cluster2, "*"}
	if err != nil || !slices.Equal(strings.Fields(out), want) {
		t.Errorf("kubectl get kubevirtprojects = %s, %v, want %v", out, err, want)
	}
}
