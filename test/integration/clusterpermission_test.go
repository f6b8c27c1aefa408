package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// kubectl runs the real kubectl against the hub.
func (f *fleet) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig=" + f.kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// update changes the spec of a ClusterPermission.
func (f *fleet) update(t *testing.T, name string, change func(*rbacv1alpha1.ClusterPermission)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cp, err := f.get(t.Context(), name)
		if err != nil {
			return err
		}
		change(cp)
		_, err = f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Update(t.Context(), cp, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClusterPermissionReachesTheManagedCluster(t *testing.T) {
	f := shared(t)
	const name = "whole-life"
	create(t, f.ocm, permission(name))
	f.present(t, objectsOf(name)...)
	cp := f.applied(t, name)
	for kind, entries := range map[string]int{
		"clusterRoles": len(cp.Status.ResourceStatus.ClusterRoles), "clusterRoleBindings": len(cp.Status.ResourceStatus.ClusterRoleBindings),
		"roles": len(cp.Status.ResourceStatus.Roles), "roleBindings": len(cp.Status.ResourceStatus.RoleBindings),
	} {
		if entries != 1 {
			t.Errorf("status.resourceStatus.%s has %d entries, not 1", kind, entries)
		}
	}
	work := must(f.work(t.Context(), cp))(t)
	if !metav1.IsControlledBy(work, cp) {
		t.Errorf("the work is not controlled by the ClusterPermission: %v", work.OwnerReferences)
	}
	binding := must(f.managed.RbacV1().ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{}))(t)
	if want := []rbacv1.Subject{*user("alice")}; !equality.Semantic.DeepEqual(binding.Subjects, want) {
		t.Errorf("subjects are %v, not %v", binding.Subjects, want)
	}

	t.Run("a change arrives", func(t *testing.T) {
		f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) {
			cp.Spec.ClusterRole.Rules = readPods
			cp.Spec.ClusterRoleBinding.Subject = user("carol")
		})
		eventually(t, "the change is on the managed cluster", func(ctx context.Context) error {
			role, err := f.managed.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			binding, err := f.managed.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !equality.Semantic.DeepEqual(role.Rules, readPods) || binding.Subjects[0].Name != "carol" {
				return fmt.Errorf("rules %v, subjects %v", role.Rules, binding.Subjects)
			}
			return nil
		})
		if cp := f.applied(t, name); cp.Generation != 2 {
			t.Errorf("generation is %d, not 2", cp.Generation)
		}
	})

	t.Run("what was removed goes", func(t *testing.T) {
		f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) {
			cp.Spec.Roles, cp.Spec.RoleBindings = nil, nil
		})
		f.absent(t, object{"Role", "default", name}, object{"RoleBinding", "default", name})
		f.present(t, object{"ClusterRole", "", name}, object{"ClusterRoleBinding", "", name})
		if cp := f.applied(t, name); len(cp.Status.ResourceStatus.Roles) > 0 {
			t.Errorf("the status still lists roles: %v", cp.Status.ResourceStatus.Roles)
		}
	})

	t.Run("deletion removes everything", func(t *testing.T) {
		if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.absent(t, objectsOf(name)...)
		f.noWorks(t, name)
	})
}

// A binding's roleRef is immutable on the managed cluster; the agent has to
// replace the binding.
func TestRoleRefOfABindingChanges(t *testing.T) {
	f := shared(t)
	const name = "changing-roleref"
	cp := permission(name)
	cp.Spec.ClusterRoleBinding.RoleRef = &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	create(t, f.ocm, cp)
	f.applied(t, name)
	f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) { cp.Spec.ClusterRoleBinding.RoleRef.Name = "edit" })
	eventually(t, "the binding refers to the other role", func(ctx context.Context) error {
		binding, err := f.managed.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil && binding.RoleRef.Name != "edit" {
			work, _ := f.work(ctx, must(f.get(ctx, name))(t))
			return fmt.Errorf("it refers to %s; the work's conditions: %v", binding.RoleRef.Name, work.Status.Conditions)
		}
		return err
	})
}

func TestSampleOfTheProposal(t *testing.T) {
	f := shared(t)
	const name = "my-managed-rbac"
	deleteLater(t, f.ocm, cluster1, name)
	if out, err := f.kubectl(t, "", "apply", "-f", "testdata/seed-001.yaml"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	f.present(t, object{"ClusterRole", "", name}, object{"ClusterRoleBinding", "", name},
		object{"Role", "default", name}, object{"RoleBinding", "default", name})
	f.applied(t, name)
	eventually(t, "a condition names what is not delivered", func(ctx context.Context) error {
		cp, err := f.get(ctx, name)
		if err != nil {
			return err
		}
		if err := hasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse); err != nil {
			return err
		}
		message := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionFullyDelivered).Message
		for _, path := range []string{"spec.roles[1].namespaceSelector", "spec.roleBindings[0].subject", "spec.roleBindings[2].namespaceSelector"} {
			if !strings.Contains(message, path) {
				err = errors.Join(err, fmt.Errorf("%s is not in the message: %s", path, message))
			}
		}
		return err
	})
	if out, err := f.kubectl(t, "", "apply", "-f", "testdata/seed-001.yaml"); err != nil || !strings.Contains(out, "unchanged") {
		t.Errorf("applying it again: %v\n%s", err, out)
	}
}

func TestSpellingOfTodaysController(t *testing.T) {
	f := shared(t)
	const name = "todays-spelling"
	deleteLater(t, f.ocm, cluster1, name)
	sample := must(os.ReadFile("testdata/upstream.yaml"))(t)
	if out, err := f.kubectl(t, string(sample), "apply", "--validate=strict", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	f.present(t, object{"ClusterRole", "", name}, object{"ClusterRoleBinding", "", "viewers"}, object{"ClusterRoleBinding", "", name},
		object{"Role", "default", name}, object{"RoleBinding", "default", "editors"}, object{"RoleBinding", "default", name})
	binding := must(f.managed.RbacV1().ClusterRoleBindings().Get(t.Context(), "viewers", metav1.GetOptions{}))(t)
	if binding.RoleRef.Name != "view" || len(binding.Subjects) != 2 {
		t.Errorf("viewers binds %s to %v, not view to two subjects", binding.RoleRef.Name, binding.Subjects)
	}
	var cp *rbacv1alpha1.ClusterPermission
	eventually(t, "the roles that are bound are reported on", func(ctx context.Context) error {
		var err error
		if cp, err = f.get(ctx, name); err != nil {
			return err
		}
		return errors.Join(hasCondition(cp, "ValidateRolesExist", metav1.ConditionTrue),
			hasCondition(cp, "ValidateClusterRolesExist", metav1.ConditionFalse))
	})
	if message := meta.FindStatusCondition(cp.Status.Conditions, "ValidateClusterRolesExist").Message; !strings.HasSuffix(message, ": no-such-role") {
		t.Errorf("the message does not name the missing role alone: %s", message)
	}
}
