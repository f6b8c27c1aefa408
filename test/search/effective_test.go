package search

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// bindOnCluster grants rules in a namespace of the managed cluster, as a user of the cluster does. The returned function
// revokes them.
func (f *fleet) bindOnCluster(t *testing.T, namespace string, subject rbacv1.Subject, rules []rbacv1.PolicyRule) (revoke func()) {
	t.Helper()
	name := framework.Unique("direct")
	framework.CreateRole(t, f.ManagedClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
	bindings := f.ManagedClient.RbacV1().RoleBindings(namespace)
	framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{}))(t)
	revoke = func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(revoke)
	return revoke
}

// awaitKnown waits until a review says whether a user may list ConfigMaps in a namespace of the managed cluster.
func (f *fleet) awaitKnown(t *testing.T, user, namespace string, want accessv1alpha1.AccessDecision) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the review of %s is %s", user, want), func(ctx context.Context) error {
		got, err := f.OCM.AccessV1alpha1().FleetAccessReviews().Create(ctx, &accessv1alpha1.FleetAccessReview{Spec: accessv1alpha1.FleetAccessReviewSpec{
			User: user, Clusters: accessv1alpha1.ClusterSelection{Names: []string{framework.Cluster1}},
			AccessRequest: accessv1alpha1.AccessRequest{ResourceAttributes: &accessv1alpha1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: namespace}},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if len(got.Status.Clusters) != 1 || got.Status.Clusters[0].Decision != want {
			return fmt.Errorf("review = %s", framework.ToJSON(got.Status))
		}
		return nil
	})
}

// followsCluster checks that the RBAC of a managed cluster decides there, in searches and watches, and the intended rules
// of ClusterPermissions while it is unknown.
func (f *fleet) followsCluster(t *testing.T, m *marked) {
	f.awaitKnown(t, framework.Unique("nobody"), m.shop, accessv1alpha1.AccessDenied)
	t.Run("a binding of the cluster", func(t *testing.T) {
		c := f.searcher(t, framework.Unique("direct"))
		watching := framework.Must(c.OCM.SearchV1alpha1().FleetResources(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{
			LabelSelector: markKey + "=" + m.value, SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}))(t)
		defer watching.Stop()
		if event := nextOfAny(t, watching); event.Type != watch.Bookmark {
			t.Fatalf("event before the grant = %s, want only BOOKMARK", event.Type)
		}
		start := time.Now()
		keys := []string{"ConfigMap shop/a", "Secret shop/s"}
		revoke := f.bindOnCluster(t, m.shop, c.Subject, slices.Concat(lists("", "configmaps", "a"), lists("", "secrets")))
		c.findsMarked(t, m, keys...)
		wantEvents(t, watching, watch.Added, slices.Collect(maps.Keys(m.of(t, keys...)))...)
		framework.Soon(t, "the grant takes effect", start, framework.Prompt)
		start = time.Now()
		revoke()
		wantEvents(t, watching, watch.Deleted, slices.Collect(maps.Keys(m.of(t, keys...)))...)
		c.findsMarked(t, m)
		framework.Soon(t, "the revocation takes effect", start, framework.Prompt)
	})
	t.Run("a group everywhere", func(t *testing.T) {
		t.Parallel()
		team := framework.Unique("team")
		c := f.searcher(t, framework.Unique("member"), team)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("lists-deployments")}, Rules: lists("apps", "deployments")}
		framework.CreateClusterRole(t, f.ManagedClient, role)
		f.bindEverywhere(t, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: team}, role.Name)
		c.findsMarked(t, m, "Deployment shop/web", "Deployment back/web")
	})
	t.Run("authenticated users of the cluster", func(t *testing.T) {
		t.Parallel()
		c, witness := f.searcher(t, framework.Unique("authenticated")), f.searcher(t, framework.Unique("witness"))
		f.bindOnCluster(t, m.shop, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}, lists("", "configmaps"))
		f.bindOnCluster(t, m.back, witness.Subject, lists("", "configmaps", "b"))
		witness.findsMarked(t, m, "ConfigMap back/b")
		c.findsMarked(t, m)
	})
	t.Run("a ManifestWork that no ClusterPermission owns", func(t *testing.T) {
		t.Parallel()
		c := f.searcher(t, framework.Unique("delivered"))
		f.writesGrant(t, c.Subject, m.shop)
		c.findsMarked(t, m, "ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment shop/web", "ReplicaSet shop/web-1")
	})
	t.Run("a ClusterRole that only the cluster has", func(t *testing.T) {
		t.Parallel()
		c := f.searcher(t, framework.Unique("bound"))
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("of-cluster")}, Rules: lists("", "configmaps", "b")}
		framework.CreateClusterRole(t, f.ManagedClient, role)
		cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, rbacv1alpha1.ClusterPermissionSpec{RoleBindings: &[]rbacv1alpha1.RoleBinding{{
			Namespace: m.shop, RoleRef: rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "ClusterRole", Name: new(role.Name)}, Subject: &c.Subject,
		}}}))
		f.Applied(t, cp.Name)
		c.findsMarked(t, m, "ConfigMap shop/b")
	})
}

// followsUnknownCluster checks that ClusterPermissions decide while the RBAC of the cluster is unknown, and the cluster
// again afterwards.
func (f *fleet) followsUnknownCluster(t *testing.T, m *marked) {
	c := f.searcher(t, framework.Unique("unknown"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, c.Subject, lists("", "configmaps", "a"))))
	f.Applied(t, cp.Name)
	f.bindOnCluster(t, m.back, c.Subject, lists("", "configmaps", "a"))
	c.findsMarked(t, m, "ConfigMap shop/a", "ConfigMap back/a")
	var names []string
	for i := range inventory.MaxAccessBytes / 10 {
		names = append(names, fmt.Sprint("name-", 10000+i))
	}
	// The agent does not report the content of this role, so the RBAC of the cluster is incomplete.
	large := framework.Must(f.ManagedClient.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("large")}, Rules: lists("", "configmaps", names...),
	}, metav1.CreateOptions{}))(t)
	f.awaitKnown(t, c.Name, m.back, accessv1alpha1.AccessUnknown)
	c.findsMarked(t, m, "ConfigMap shop/a")
	if err := f.ManagedClient.RbacV1().ClusterRoles().Delete(t.Context(), large.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.findsMarked(t, m, "ConfigMap shop/a", "ConfigMap back/a")
}

// bindEverywhere binds a ClusterRole of the managed cluster until the end of the test.
func (f *fleet) bindEverywhere(t *testing.T, subject rbacv1.Subject, role string) {
	t.Helper()
	bindings := f.ManagedClient.RbacV1().ClusterRoleBindings()
	name := framework.Unique("direct")
	framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
