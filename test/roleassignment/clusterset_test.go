package roleassignment

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// may waits until a user may or may not read pods in a namespace of the managed cluster.
func (f *fleet) may(t *testing.T, user, verb, namespace string, want bool) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("user %s on the managed cluster: %s pods in namespace %q = %t", user, verb, namespace, want), func(ctx context.Context) error {
		review, err := f.ManagedClient.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Resource: "pods", Namespace: namespace,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if review.Status.Allowed != want {
			return fmt.Errorf("allowed = %t", review.Status.Allowed)
		}
		return nil
	})
}

// TestClusterSet checks that the clusters of a set get the grants of a MulticlusterRoleAssignment, that a cluster that
// joins the set gets them, and that a cluster that leaves the set or whose MulticlusterRoleAssignment is deleted loses
// them.
func TestClusterSet(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}})}
	f.makeSet(t, "north")
	f.makeSet(t, "south")
	f.move(t, framework.Cluster1, "north")
	silent, later := f.silentIn(t, "north"), f.silentIn(t, "south")

	a := forSet("readers", "ann", "north", "view")
	a.Spec.RoleAssignments = append(a.Spec.RoleAssignments, rbacv1beta1.RoleAssignment{
		Name: "change", ClusterRole: "edit", TargetNamespaces: []string{"default"},
		ClusterSelection: rbacv1beta1.ClusterSelection{
			Type: rbacv1beta1.SelectLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{region: "north"}},
		},
	})
	preview := framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Create(t.Context(), a, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
	want := &rbacv1beta1.AssignmentPreview{Selected: 2, Changed: 2, Changes: []rbacv1beta1.AssignmentChange{{
		Clusters: []string{framework.Cluster1, silent},
		Grant:    []rbacv1beta1.Grant{{Subject: "User/ann", ClusterRole: "view"}, {Subject: "User/ann", ClusterRole: "edit", Namespace: "default"}},
	}}}
	if got := preview.Status.Preview; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("preview of a dry-run = %s, want %s", framework.ToJSON(got), framework.ToJSON(want))
	}

	f.create(t, a)
	f.granted(t, a, framework.Cluster1, silent)
	f.may(t, "ann", "list", "kube-system", true)
	f.may(t, "ann", "delete", "default", true)
	f.may(t, "ann", "delete", "kube-system", false)
	f.says(t, a, "one cluster is ready and the other one is pending", func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
		return s.Clusters != nil && s.Clusters.Selected == 2 && s.Clusters.Ready == 1 && fails(silent, "Pending")(s) &&
			meta.IsStatusConditionTrue(s.Conditions, rbacv1beta1.ConditionApplied) && meta.IsStatusConditionFalse(s.Conditions, rbacv1beta1.ConditionReady)
	})
	if out, err := f.Kubectl(t, "", "get", "mra", "readers", "-n", home); err != nil || !strings.Contains(out, "User/ann") || !strings.Contains(out, "1/2") {
		t.Errorf("kubectl get mra = %s, %v, want the subject and 1/2", out, err)
	}

	t.Run("joins and leaves", func(t *testing.T) {
		f.move(t, later, "north")
		f.granted(t, a, framework.Cluster1, silent, later)
		f.move(t, silent, "south")
		f.granted(t, a, framework.Cluster1, later)
		f.move(t, silent, "north")
		f.move(t, later, "south")
		f.granted(t, a, framework.Cluster1, silent)
	})
	t.Run("ClusterPermissions are restored", func(t *testing.T) {
		permissions := f.OCM.RbacV1alpha1().ClusterPermissions(silent)
		changed := framework.Must(permissions.Get(t.Context(), render.Name(home, a.Name), metav1.GetOptions{}))(t)
		wanted := changed.DeepCopy()
		changed.Spec.RoleBindings = nil
		changed.ResourceVersion, changed.Labels, changed.Annotations = "", nil, nil
		framework.Must(permissions.Update(t.Context(), changed, metav1.UpdateOptions{}))(t)
		framework.Eventually(t, "the ClusterPermission has its previous content", func(ctx context.Context) error {
			current, err := permissions.Get(ctx, wanted.Name, metav1.GetOptions{})
			if err == nil && (!equality.Semantic.DeepEqual(current.Spec, wanted.Spec) || !equality.Semantic.DeepEqual(current.Labels, wanted.Labels) || !equality.Semantic.DeepEqual(current.Annotations, wanted.Annotations)) {
				err = fmt.Errorf("ClusterPermission = %s", framework.ToJSON(current))
			}
			return err
		})
		if err := permissions.Delete(t.Context(), wanted.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wanted.UID}}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "a new ClusterPermission exists", func(ctx context.Context) error {
			current, err := permissions.Get(ctx, wanted.Name, metav1.GetOptions{})
			if err == nil && current.UID == wanted.UID {
				err = fmt.Errorf("UID = %s, want another", current.UID)
			}
			return err
		})
	})
	t.Run("users cannot claim ClusterPermissions", func(t *testing.T) {
		claimed := framework.PermissionIn(silent, "claimed")
		claimed.Labels = map[string]string{rbacv1beta1.NamespaceLabel: home}
		claimed.Annotations = map[string]string{rbacv1beta1.NameAnnotation: a.Name, rbacv1beta1.UIDAnnotation: "x"}
		created := framework.CreatePermission(t, f.OCM, claimed)
		if len(created.Labels) > 0 || len(created.Annotations) > 0 {
			t.Errorf("labels and annotations = %v %v, want none", created.Labels, created.Annotations)
		}
	})
	t.Run("assignments of other namespaces with the same name", func(t *testing.T) {
		other := forSet(a.Name, "ann", "north", "view")
		other.Namespace = "kube-public"
		f.create(t, other)
		f.granted(t, other, framework.Cluster1, silent)
		if err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(other.Namespace).Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.granted(t, other)
		f.granted(t, a, framework.Cluster1, silent)
	})
	t.Run("change", func(t *testing.T) {
		current := framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Get(t.Context(), a.Name, metav1.GetOptions{}))(t)
		// The server writes the status meanwhile.
		current.ResourceVersion = ""
		current.Spec.RoleAssignments = current.Spec.RoleAssignments[:1]
		preview := framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Update(t.Context(), current, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
		if p := preview.Status.Preview; p == nil || len(p.Changes) != 1 || len(p.Changes[0].Revoke) != 1 || p.Changes[0].Revoke[0].ClusterRole != "edit" || len(p.Changes[0].Grant) > 0 {
			t.Errorf("preview of the removal of a role assignment = %s, want one revoked grant of ClusterRole edit", framework.ToJSON(p))
		}
		framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Update(t.Context(), current, metav1.UpdateOptions{}))(t)
		f.may(t, "ann", "delete", "default", false)
		f.may(t, "ann", "list", "default", true)
	})
	t.Run("rendered", func(t *testing.T) {
		f.says(t, a, "the change is applied", func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
			return len(s.RoleAssignments) == 1 && s.Clusters.Ready == 1
		})
		rendered := &rbacv1beta1.MulticlusterRoleAssignment{}
		if err := f.OCM.RbacV1beta1().RESTClient().Get().Namespace(home).Resource("multiclusterroleassignments").Name(a.Name).SubResource("rendered").
			Do(t.Context()).Into(rendered); err != nil {
			t.Fatal(err)
		}
		if p := rendered.Status.Preview; p == nil || p.Selected != 2 || p.Changed != 0 {
			t.Errorf("preview of the stored object = %s, want 2 clusters without a change", framework.ToJSON(p))
		}
	})
	t.Run("Events", func(t *testing.T) {
		f.move(t, silent, "south")
		f.HasEvent(t, home, "MulticlusterRoleAssignment", a.Name, corev1.EventTypeNormal, rbacv1beta1.ReasonAssignmentsReady, "active, on 1 clusters")
		framework.CreatePermission(t, f.OCM, framework.PermissionIn(framework.Cluster1, render.Name(home, "taken")))
		taken := f.create(t, forSet("taken", "ann", "north", "view"))
		f.HasEvent(t, home, "MulticlusterRoleAssignment", taken.Name, corev1.EventTypeWarning, rbacv1beta1.ReasonAssignmentsFailure, "1 of 1 role assignments")
		f.move(t, silent, "north")
		f.granted(t, a, framework.Cluster1, silent)
	})
	t.Run("delete", func(t *testing.T) {
		if err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Delete(t.Context(), a.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.granted(t, a)
		f.may(t, "ann", "list", "default", false)
	})
	t.Run("server stopped", func(t *testing.T) {
		f.create(t, a)
		f.granted(t, a, framework.Cluster1, silent)
		// The MulticlusterRoleAssignment is deleted while the server cannot delete anything else.
		if err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Delete(t.Context(), a.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := f.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.granted(t, a)
		f.may(t, "ann", "list", "default", false)
	})
}
