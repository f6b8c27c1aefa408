package search

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// followed bounds the time in which searches and watches follow a change of RBAC on the hub. The answers to
// SubjectAccessReviews are cached for ten seconds, so a server that sends reviews follows later.
const followed = 8 * time.Second

// TestSearchFollowsGrants checks that grants and revocations on the hub take effect in searches and in open watches.
func TestSearchFollowsGrants(t *testing.T) { onShared(t, searchFollowsGrants) }

func searchFollowsGrants(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	c := s.searcher(t, framework.Unique("granted"))
	query := "kind:Pod cluster:" + s.hidden.name
	pods := []string{"pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"}
	finds(t, c.OCM, query)
	watching := framework.Must(c.OCM.SearchV1alpha1().FleetResources(s.hidden.name).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "kind=Pod", SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))(t)
	defer watching.Stop()
	if event := nextOfAny(t, watching); event.Type != watch.Bookmark {
		t.Fatalf("event before the grant = %s, want only BOOKMARK", event.Type)
	}
	for range 2 {
		start := time.Now()
		revoke := c.views(t, s.hidden.name)
		finds(t, c.OCM, query, pods...)
		wantEvents(t, watching, watch.Added, pods...)
		framework.Soon(t, "searches and the watch follow a grant", start, followed)

		start = time.Now()
		revoke()
		finds(t, c.OCM, query)
		wantEvents(t, watching, watch.Deleted, pods...)
		framework.Soon(t, "searches and the watch follow a revocation", start, followed)
	}
}

// TestSearchFollowsRolesOfTheHub checks that changes of roles, bindings and aggregated roles take effect for resources
// of the hub, in searches and in an open watch.
func TestSearchFollowsRolesOfTheHub(t *testing.T) { onShared(t, searchFollowsRolesOfTheHub) }

func searchFollowsRolesOfTheHub(t *testing.T, f *fleet) {
	one, _, _ := f.hubResources(t)
	c := f.searcher(t, framework.Unique("followed"))
	query := "kind:Pod marked:" + one + " namespace:" + one
	both := []string{uidOf("Pod", one, "p1"), uidOf("Pod", one, "p2")}
	roles, ctx := f.HubClient.RbacV1().Roles(one), t.Context()
	watching := framework.Must(c.OCM.SearchV1alpha1().FleetResources(localhub.HubClusterName).Watch(ctx, metav1.ListOptions{FieldSelector: "kind=Pod,marked=" + one + ",namespace=" + one}))(t)
	defer watching.Stop()
	known := sets.New[string]()
	takes := func(what string, change func() error, want ...string) {
		t.Helper()
		start := time.Now()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		finds(t, c.OCM, query, want...)
		now := sets.New(want...)
		wantEvents(t, watching, watch.Deleted, sets.List(known.Difference(now))...)
		wantEvents(t, watching, watch.Added, sets.List(now.Difference(known))...)
		known = now
		framework.Soon(t, "searches and the watch follow "+what, start, followed)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "lister"}, Rules: []rbacv1.PolicyRule{listing("", []string{"pods"})}}
	takes("a binding without a role", func() error {
		c.Bind(t, one, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
		return nil
	})
	takes("the role of the binding", func() error {
		_, err := roles.Create(ctx, role, metav1.CreateOptions{})
		return err
	}, both...)
	takes("a narrower rule", func() error {
		role.Rules = []rbacv1.PolicyRule{listing("", []string{"pods"}, "p1")}
		_, err := roles.Update(ctx, role, metav1.UpdateOptions{})
		return err
	}, both[0])
	takes("deletion of the role", func() error { return roles.Delete(ctx, role.Name, metav1.DeleteOptions{}) })

	// The hub aggregates the rules of this ClusterRole.
	label := framework.Unique("part")
	whole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("whole")}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}},
	}}
	framework.CreateClusterRole(t, f.HubClient, whole)
	c.Bind(t, one, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: whole.Name})
	part := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("part"), Labels: map[string]string{label: "true"}}, Rules: []rbacv1.PolicyRule{listing("*", []string{"pods"})}}
	takes("a part of an aggregated role", func() error {
		framework.CreateClusterRole(t, f.HubClient, part)
		return nil
	}, both...)
}

// TestSearchFollowsNewClusters checks that users with permission to view all clusters find a new cluster as soon as it
// reports, and that the resources of a deleted cluster are removed.
func TestSearchFollowsNewClusters(t *testing.T) { onShared(t, searchFollowsNewClusters) }

func searchFollowsNewClusters(t *testing.T, f *fleet) {
	c := f.searcher(t, framework.Unique("all-clusters"))
	c.bindEverywhere(t, viewRole)
	r := f.reporter(t)
	resources, edges := r.shop()
	r.has(t, resources, edges...)
	finds(t, c.OCM, "kind:Deployment cluster:"+r.name, "deployment.payments.web")

	if err := f.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), r.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	finds(t, f.OCM, "cluster:"+r.name)
	framework.Soon(t, "the resources of a deleted cluster are removed", start, framework.Prompt)
	framework.Eventually(t, "the Inventory of "+r.name+" does not exist", func(ctx context.Context) error {
		list, err := f.OCM.SearchV1alpha1().Inventories(r.name).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("status = %+v", list.Items[0].Status)
		}
		return err
	})
	if _, err := postReport(t.Context(), r.agent.OCM, syncPath(r.name), true, map[string]any{}); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("report of a deleted cluster = %v, want 403 or 404", err)
	}
	if err := localhub.JoinCluster(t.Context(), f.Hub, r.name); err != nil {
		t.Fatal(err)
	}
}
