package permission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// update changes the spec of a ClusterPermission.
func (f *fleet) update(t *testing.T, name string, change func(*rbacv1alpha1.ClusterPermission)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cp, err := f.GetPermission(t.Context(), name)
		if err != nil {
			return err
		}
		change(cp)
		_, err = f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Update(t.Context(), cp, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClusterPermissionReachesTheManagedCluster(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "whole-life"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Present(t, framework.ObjectsOf(name)...)
	cp := f.Applied(t, name)
	for kind, entries := range map[string]int{
		"clusterRoles": len(cp.Status.ResourceStatus.ClusterRoles), "clusterRoleBindings": len(cp.Status.ResourceStatus.ClusterRoleBindings),
		"roles": len(cp.Status.ResourceStatus.Roles), "roleBindings": len(cp.Status.ResourceStatus.RoleBindings),
	} {
		if entries != 1 {
			t.Errorf("entries in status.resourceStatus.%s = %d, want 1", kind, entries)
		}
	}
	work := framework.Must(f.GetWork(t.Context(), cp))(t)
	if !metav1.IsControlledBy(work, cp) {
		t.Errorf("ownerReferences of the ManifestWork = %v, want the ClusterPermission as controller", work.OwnerReferences)
	}
	binding := framework.Must(f.ManagedClient.RbacV1().ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{}))(t)
	if want := []rbacv1.Subject{*framework.UserSubject("alice")}; !equality.Semantic.DeepEqual(binding.Subjects, want) {
		t.Errorf("subjects = %v, want %v", binding.Subjects, want)
	}

	t.Run("a change is delivered", func(t *testing.T) {
		f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) {
			cp.Spec.ClusterRole.Rules = framework.ReadPods
			cp.Spec.ClusterRoleBinding.Subject = framework.UserSubject("carol")
		})
		framework.Eventually(t, "the managed cluster has the changed rules and subject", func(ctx context.Context) error {
			role, err := f.ManagedClient.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			binding, err := f.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !equality.Semantic.DeepEqual(role.Rules, framework.ReadPods) || binding.Subjects[0].Name != "carol" {
				return fmt.Errorf("rules = %v, subjects = %v", role.Rules, binding.Subjects)
			}
			return nil
		})
		if cp := f.Applied(t, name); cp.Generation != 2 {
			t.Errorf("generation = %d, want 2", cp.Generation)
		}
	})

	t.Run("removed parts are deleted", func(t *testing.T) {
		f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) {
			cp.Spec.Roles, cp.Spec.RoleBindings = nil, nil
		})
		f.Absent(t, framework.NewObject("Role", "default", name), framework.NewObject("RoleBinding", "default", name))
		f.Present(t, framework.NewObject("ClusterRole", "", name), framework.NewObject("ClusterRoleBinding", "", name))
		if cp := f.Applied(t, name); len(cp.Status.ResourceStatus.Roles) > 0 {
			t.Errorf("roles in the status = %v, want none", cp.Status.ResourceStatus.Roles)
		}
	})

	t.Run("deletion removes all objects", func(t *testing.T) {
		if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.Absent(t, framework.ObjectsOf(name)...)
		f.NoWorks(t, name)
	})
}

// TestRoleRefOfABindingChanges checks that the agent replaces a binding if its roleRef changes. The
// roleRef of an existing binding is immutable.
func TestRoleRefOfABindingChanges(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "changing-roleref"
	cp := framework.Permission(name)
	cp.Spec.ClusterRoleBinding.RoleRef = &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	framework.CreatePermission(t, f.OCM, cp)
	f.Applied(t, name)
	f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) { cp.Spec.ClusterRoleBinding.RoleRef.Name = "edit" })
	framework.Eventually(t, "ClusterRoleBinding "+name+" refers to ClusterRole edit", func(ctx context.Context) error {
		binding, err := f.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil && binding.RoleRef.Name != "edit" {
			work, _ := f.GetWork(ctx, framework.Must(f.GetPermission(ctx, name))(t))
			return fmt.Errorf("roleRef = %s, conditions of the ManifestWork = %v", binding.RoleRef.Name, work.Status.Conditions)
		}
		return err
	})
}

func TestSampleOfTheProposal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "my-managed-rbac"
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	if out, err := f.Kubectl(t, "", "apply", "-f", "testdata/proposal.yaml"); err != nil {
		t.Fatalf("kubectl apply = %v, want nil:\n%s", err, out)
	}
	f.Present(t, framework.NewObject("ClusterRole", "", name), framework.NewObject("ClusterRoleBinding", "", name),
		framework.NewObject("Role", "default", name), framework.NewObject("RoleBinding", "default", name))
	f.Applied(t, name)
	framework.Eventually(t, "the message of FullyDelivered contains the paths of all undelivered parts", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		if err := framework.HasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse); err != nil {
			return err
		}
		message := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionFullyDelivered).Message
		for _, path := range []string{"spec.roles[1].namespaceSelector", "spec.roleBindings[0].subject", "spec.roleBindings[2].namespaceSelector"} {
			if !strings.Contains(message, path) {
				err = errors.Join(err, fmt.Errorf("message = %q, want %s in it", message, path))
			}
		}
		return err
	})
	// kubectl also compares the status in the file. The status has no effect, but kubectl prints
	// "configured" instead of "unchanged".
	before := framework.Must(f.GetPermission(t.Context(), name))(t)
	if out, err := f.Kubectl(t, "", "apply", "-f", "testdata/proposal.yaml"); err != nil {
		t.Errorf("second kubectl apply = %v, want nil:\n%s", err, out)
	}
	after := framework.Must(f.GetPermission(t.Context(), name))(t)
	for _, cp := range []*rbacv1alpha1.ClusterPermission{before, after} {
		// The agent and the server write the status in the meantime, so the comparison excludes it.
		cp.Status, cp.ResourceVersion = rbacv1alpha1.ClusterPermissionStatus{}, ""
		cp.ManagedFields = slices.DeleteFunc(cp.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource == "status" })
	}
	if !reflect.DeepEqual(after, before) {
		t.Errorf("ClusterPermission after the second kubectl apply =\n%+v\nwant\n%+v", after, before)
	}
}

func TestUpstreamSpelling(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "todays-spelling"
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	sample := framework.Must(os.ReadFile("testdata/upstream.yaml"))(t)
	if out, err := f.Kubectl(t, string(sample), "apply", "--validate=strict", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply = %v, want nil:\n%s", err, out)
	}
	f.Present(t, framework.NewObject("ClusterRole", "", name), framework.NewObject("ClusterRoleBinding", "", "viewers"), framework.NewObject("ClusterRoleBinding", "", name),
		framework.NewObject("Role", "default", name), framework.NewObject("RoleBinding", "default", "editors"), framework.NewObject("RoleBinding", "default", name))
	binding := framework.Must(f.ManagedClient.RbacV1().ClusterRoleBindings().Get(t.Context(), "viewers", metav1.GetOptions{}))(t)
	if binding.RoleRef.Name != "view" || len(binding.Subjects) != 2 {
		t.Errorf("ClusterRoleBinding viewers = role %s for %v, want role view for two subjects", binding.RoleRef.Name, binding.Subjects)
	}
	var cp *rbacv1alpha1.ClusterPermission
	framework.Eventually(t, "ValidateRolesExist is True and ValidateClusterRolesExist is False", func(ctx context.Context) error {
		var err error
		if cp, err = f.GetPermission(ctx, name); err != nil {
			return err
		}
		return errors.Join(framework.HasCondition(cp, "ValidateRolesExist", metav1.ConditionTrue),
			framework.HasCondition(cp, "ValidateClusterRolesExist", metav1.ConditionFalse))
	})
	if message := meta.FindStatusCondition(cp.Status.Conditions, "ValidateClusterRolesExist").Message; !strings.HasSuffix(message, ": no-such-role") {
		t.Errorf("message of ValidateClusterRolesExist = %q, want no-such-role as the only missing role", message)
	}
}
