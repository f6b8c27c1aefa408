package roleassignment

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const clusterGroup = "cluster.open-cluster-management.io"

// mayEverywhere binds a new ClusterRole to a caller in all namespaces, and waits until the hub allows its rules. The
// returned function deletes the binding.
func mayEverywhere(t *testing.T, c *framework.Caller, rules ...rbacv1.PolicyRule) func() {
	t.Helper()
	name := framework.Unique("test")
	framework.CreateClusterRole(t, c.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	bindings := c.HubClient.RbacV1().ClusterRoleBindings()
	framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{c.Subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{}))(t)
	unbind := func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(unbind)
	for _, rule := range rules {
		c.AwaitAllowed(t, "", rule)
	}
	return unbind
}

// author returns a user who may write MulticlusterRoleAssignments, and nothing else.
func (f *fleet) author(t *testing.T, name string) *framework.Caller {
	t.Helper()
	c := framework.NewCaller(t, f.Hub, name)
	c.Bind(t, home, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"})
	c.AwaitAllowed(t, home, rbacv1.PolicyRule{APIGroups: []string{rbacv1beta1.GroupName}, Resources: []string{"multiclusterroleassignments"}, Verbs: []string{"create"}})
	return c
}

func write(t *testing.T, c *framework.Caller, a *rbacv1beta1.MulticlusterRoleAssignment) error {
	_, err := c.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Create(t.Context(), a, metav1.CreateOptions{})
	return err
}

// refused checks that a request is refused with a code and a text, and that nothing is stored.
func (f *fleet) refused(t *testing.T, err error, a *rbacv1beta1.MulticlusterRoleAssignment, is func(error) bool, texts ...string) {
	t.Helper()
	if !is(err) {
		t.Fatalf("create %s = %v, want a refusal that contains %q", a.Name, err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("create %s = %v, want it to contain %q", a.Name, err, text)
		}
	}
	if _, err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Get(t.Context(), a.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get %s = %v, want NotFound", a.Name, err)
	}
}

var (
	getSets = rbacv1.PolicyRule{APIGroups: []string{clusterGroup}, Resources: []string{"managedclustersets"}, Verbs: []string{"get"}}
	bindSet = func(set string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{clusterGroup}, Resources: []string{"managedclustersets/bind"}, ResourceNames: []string{set}, Verbs: []string{"create"}}
	}
	bindRole = func(role string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{role}, Verbs: []string{"bind"}}
	}
)

// TestRefusedAssignments checks what the server refuses in the request, and whom it allows to grant.
func TestRefusedAssignments(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{})}
	f.makeSet(t, "east")
	f.makeSet(t, "west")
	first, second := f.silentIn(t, "east"), f.silentIn(t, "west")

	t.Run("ClusterRole does not exist", func(t *testing.T) {
		a := forSet("no-role", "ann", "east", "view", "absent")
		err := write(t, f.admin(t), a)
		f.refused(t, err, a, apierrors.IsInvalid, `spec.roleAssignments[1].clusterRole: Not found: "absent"`)
	})
	t.Run("set is not readable", func(t *testing.T) {
		a := forSet("no-set", "ann", "east", "view")
		f.refused(t, write(t, f.author(t, "blind"), a), a, apierrors.IsForbidden,
			"spec.roleAssignments[0].clusterSelection.clusterSets[0]", `user "blind" cannot get managedclustersets.`+clusterGroup+` "east"`)
	})
	t.Run("Placement is not readable", func(t *testing.T) {
		a := forSet("no-placement", "ann", "east", "view")
		a.Spec.RoleAssignments[0].ClusterSelection = rbacv1beta1.ClusterSelection{
			Type: rbacv1beta1.SelectPlacements, Placements: []rbacv1beta1.PlacementRef{{Namespace: "kube-public", Name: "all"}},
		}
		f.refused(t, write(t, f.author(t, "unplaced"), a), a, apierrors.IsForbidden,
			"spec.roleAssignments[0].clusterSelection.placements[0]", `user "unplaced" cannot get placements.`+clusterGroup+` "all" in namespace "kube-public"`)
	})
	t.Run("clusters are not readable", func(t *testing.T) {
		a := forSet("no-labels", "ann", "east", "view")
		a.Spec.RoleAssignments[0].ClusterSelection = rbacv1beta1.ClusterSelection{Type: rbacv1beta1.SelectLabels, LabelSelector: &metav1.LabelSelector{}}
		f.refused(t, write(t, f.author(t, "unlabelled"), a), a, apierrors.IsForbidden,
			"spec.roleAssignments[0].clusterSelection.labelSelector", `user "unlabelled" cannot list managedclusters`)
	})
	t.Run("grant is not allowed", func(t *testing.T) {
		bob := f.author(t, "bob")
		mayEverywhere(t, bob, getSets)
		a := forSet("escalation", "ann", "east", "view")
		f.refused(t, write(t, bob, a), a, apierrors.IsForbidden, "spec.roleAssignments[0]: refused on 1 clusters ("+first+")",
			`user "bob" cannot grant ClusterRole "view" on managed cluster "`+first+`"`)
		// Neither permission suffices alone.
		mayEverywhere(t, bob, bindRole("view"))
		f.refused(t, write(t, bob, a), a, apierrors.IsForbidden, "spec.roleAssignments[0]: refused")
		mayEverywhere(t, bob, bindSet("west"))
		f.refused(t, write(t, bob, a), a, apierrors.IsForbidden, "spec.roleAssignments[0]: refused")
		allowed := f.create(t, forSet("after-escalation", "ann", "east", "view"))
		await.Stays(t, "the absence of ClusterPermissions of a refused assignment", func(ctx context.Context) error {
			if permissions, err := f.permissions(ctx, allowed); err != nil || len(permissions) == 0 {
				return fmt.Errorf("ClusterPermissions of a later assignment = %d, error %w", len(permissions), err)
			}
			return nil
		}, func(ctx context.Context) error {
			permissions, err := f.permissions(ctx, a)
			if err == nil && len(permissions) > 0 {
				err = fmt.Errorf("ClusterPermissions = %d, want none", len(permissions))
			}
			return err
		})
	})
	t.Run("permission for a cluster", func(t *testing.T) {
		carl := f.author(t, "carl")
		mayEverywhere(t, carl, getSets)
		carl.Bind(t, second, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: framework.GrantRole})
		carl.AwaitAllowed(t, second, rbacv1.PolicyRule{APIGroups: []string{rbacv1beta1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: []string{"bind"}})
		a := forSet("own-cluster", "ann", "west", "edit")
		if err := write(t, carl, a); err != nil {
			t.Fatal(err)
		}
		f.deleteLater(t, a)
		f.granted(t, a, second)
		// The author is checked again for a cluster that joins the set.
		f.move(t, first, "west")
		f.says(t, a, "the new cluster is forbidden", fails(first, "Forbidden"))
		f.granted(t, a, second)
		f.move(t, first, "east")
		f.says(t, a, "the cluster no longer fails", func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
			return s.Clusters.Selected == 1 && !fails(first, "Forbidden")(s)
		})
	})
	t.Run("permission for a set", func(t *testing.T) {
		dora := f.author(t, "dora")
		mayEverywhere(t, dora, getSets, bindRole("view"))
		unbind := mayEverywhere(t, dora, bindSet("east"))
		a := forSet("own-set", "ann", "east", "view")
		if err := write(t, dora, a); err != nil {
			t.Fatal(err)
		}
		f.deleteLater(t, a)
		f.granted(t, a, first)
		tomorrow := f.silentIn(t, "east")
		f.granted(t, a, first, tomorrow)

		// Another user changes what dora did not write. dora remains the author of the rest.
		framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Get(t.Context(), a.Name, metav1.GetOptions{}))(t)
		f.update(t, a, func(a *rbacv1beta1.MulticlusterRoleAssignment) {
			more := forSet("", "ann", "east", "edit").Spec.RoleAssignments[0]
			a.Spec.RoleAssignments = append(a.Spec.RoleAssignments, more)
		})
		f.says(t, a, "the role assignments have two authors", func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
			return len(s.Authors) == 2 && s.Authors[0].Username == "dora" && fmt.Sprint(s.Authors[0].RoleAssignments, s.Authors[1].RoleAssignments) == "[view] [edit]" && len(s.Authors[0].Extra) == 0
		})

		// Grants stay when the author loses the permission. New clusters get only the grants of the other author.
		unbind()
		refusal := forSet("too-late", "ann", "east", "view")
		framework.Eventually(t, "the server refuses dora", func(ctx context.Context) error {
			_, err := dora.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Create(ctx, refusal, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("create = %w, want 403", err)
			}
			return nil
		})
		late := f.silentIn(t, "east")
		permissions := f.granted(t, a, first, tomorrow, late)
		f.says(t, a, "the late cluster is forbidden", fails(late, "Forbidden"))
		for cluster, want := range map[string]int{first: 2, tomorrow: 2, late: 1} {
			if got := len(*permissions[cluster].Spec.ClusterRoleBindings); got != want {
				t.Errorf("bindings of cluster %s = %d, want %d", cluster, got, want)
			}
		}
	})
	t.Run("status of the authors", func(t *testing.T) {
		a := f.create(t, forSet("forged", "ann", "west", "view"))
		a.Status.Authors = []rbacv1beta1.AssignmentAuthor{{Username: "forged", RoleAssignments: []string{"view"}}}
		framework.Eventually(t, "the status is written", func(ctx context.Context) error {
			current, err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Get(ctx, a.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			a.ResourceVersion = current.ResourceVersion
			updated, err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).UpdateStatus(ctx, a, metav1.UpdateOptions{})
			if err == nil && updated.Status.Authors[0].Username == "forged" {
				t.Error("a write of the status changed the authors, want no change")
			}
			return err
		})
	})
}

// admin returns the administrator of the hub as a caller.
func (f *fleet) admin(t *testing.T) *framework.Caller {
	t.Helper()
	return &framework.Caller{Name: "admin", OCM: f.OCM, HubClient: f.HubClient}
}

func (f *fleet) update(t *testing.T, a *rbacv1beta1.MulticlusterRoleAssignment, change func(*rbacv1beta1.MulticlusterRoleAssignment)) {
	t.Helper()
	framework.Eventually(t, "the update of "+a.Name+" succeeds", func(ctx context.Context) error {
		current, err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(current)
		_, err = f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
}
