package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/userpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	// fleetHub is the name of the real cluster in the index. It is the hub of the fleet.
	fleetHub = "local-cluster"
	// operators is a group with a role in each whole cluster, and with another one in teamNamespaces of each.
	operators      = "operators"
	teamNamespaces = 20
	accessWatches  = 1000
)

// bindOperators adds the bindings of operators to each cluster.
func bindOperators(b *testing.B, x *access.Index, clusters []string) {
	b.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: operators}}
	u := &access.Update{Bindings: map[rbac.Key]access.Binding{
		{Kind: rbac.KindClusterRoleBinding, Name: operators}: {RoleRef: refToClusterRole("edit"), Subjects: subjects},
	}}
	for i := range teamNamespaces {
		u.Bindings[rbac.Key{Kind: rbac.KindRoleBinding, Namespace: fmt.Sprintf("team-%d", i), Name: operators}] = access.Binding{RoleRef: refToClusterRole("admin"), Subjects: subjects}
	}
	for _, cluster := range clusters {
		x.Update(cluster, u)
	}
}

func refToClusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: rbac.KindClusterRole, Name: name}
}

// userPermissions serves UserPermissions of a fleet whose hub is a real cluster.
type userPermissions struct{ *view.REST }

// newUserPermissions labels the ClusterRoles admin, edit and view of the hub, and makes the operators its administrators.
func newUserPermissions(b *testing.B, hub kubernetes.Interface, x *access.Index, clusters []string) userPermissions {
	b.Helper()
	for _, role := range []string{"admin", "edit", "view"} {
		label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, clusterviewv1alpha1.DiscoverableLabel)
		framework.Must(hub.RbacV1().ClusterRoles().Patch(b.Context(), role, types.MergePatchType, label, metav1.PatchOptions{}))(b)
	}
	framework.Must(hub.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: operators}, RoleRef: refToClusterRole("cluster-admin"),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: operators}},
	}, metav1.CreateOptions{}))(b)
	own := framework.Must(fleetgen.AccessOf(b.Context(), hub.RbacV1()))(b)
	x.Update(fleetHub, own)
	x.SetState(fleetHub, access.State{Known: true})

	factory := informers.NewSharedInformerFactory(hub, 0)
	roles := factory.Rbac().V1()
	scopes := framework.Must(visibility.New(visibility.Config{
		Mode: visibility.RBAC, Roles: roles.Roles().Informer(), ClusterRoles: roles.ClusterRoles().Informer(),
		RoleBindings: roles.RoleBindings().Informer(), ClusterRoleBindings: roles.ClusterRoleBindings().Informer(),
	}))(b)
	storage := framework.Must(userpermission.NewREST(userpermission.Options{
		Bound:        &view.Bound{Index: x, Clusters: func() ([]string, error) { return append([]string(nil), clusters...), nil }, HubCluster: fleetHub},
		ClusterRoles: roles.ClusterRoles().Informer(), Scopes: scopes,
		// The clusters do not change.
		Clusters: externalversions.NewSharedInformerFactory(nil, 0).Cluster().V1().ManagedClusters().Informer(),
	}))(b)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running wait.Group
	running.StartWithContext(ctx, scopes.Run)
	factory.Start(ctx.Done())
	b.Cleanup(func() {
		cancel()
		factory.Shutdown()
		running.Wait()
	})
	factory.WaitForCacheSync(ctx.Done())
	if err := await.Poll(ctx, func(context.Context) error {
		if !scopes.HasSynced() {
			return visibility.ErrNotSynced
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return userPermissions{storage}
}

// permissionCaller returns an operator, or a user whom some clusters bind.
func permissionCaller(r *rand.Rand) *user.DefaultInfo {
	caller := &user.DefaultInfo{Name: fmt.Sprintf("user-%d", r.IntN(5000)), Groups: []string{user.AllAuthenticated}}
	if r.IntN(4) == 0 {
		caller.Groups = append(caller.Groups, operators)
	}
	return caller
}

// list returns the number of bindings, and the bytes of the response as JSON.
func (u userPermissions) list(b *testing.B, caller user.Info) (bindings, bytes int) {
	found, err := u.List(request.WithUser(b.Context(), caller), nil)
	if err != nil {
		b.Fatal(err)
	}
	list, ok := found.(*clusterviewv1alpha1.UserPermissionList)
	if !ok {
		b.Fatalf("List() = %T, want a UserPermissionList", found)
	}
	for i := range list.Items {
		bindings += len(list.Items[i].Status.Bindings)
	}
	text, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	return bindings, len(text)
}

// watch follows the permissions of many callers until the returned function is called, which returns the number of events.
func (u userPermissions) watch(b *testing.B, r *rand.Rand) (stop func() int64) {
	b.Helper()
	var events atomic.Int64
	var reading wait.Group
	var stops []func()
	for range accessWatches {
		w, err := u.Watch(request.WithUser(context.WithoutCancel(b.Context()), permissionCaller(r)), &metainternalversion.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		stops = append(stops, w.Stop)
		reading.Start(func() {
			for range w.ResultChan() {
				events.Add(1)
			}
		})
	}
	return func() int64 {
		for _, stop := range stops {
			stop()
		}
		reading.Wait()
		return events.Load()
	}
}
