package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// ReadPods contains the rules of the Role that Permission returns.
var ReadPods = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}

// ReadAll contains the rules of the ClusterRole that Permission returns.
var ReadAll = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get"}}}

// UserSubject returns the RBAC subject of a user.
func UserSubject(name string) *rbacv1.Subject {
	return &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Permission returns a ClusterPermission with one object of each of the four RBAC kinds. All of them
// have the name of the ClusterPermission.
func Permission(name string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: Cluster1, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: ReadAll},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: UserSubject("alice")},
			Roles:              &[]rbacv1alpha1.Role{{Namespace: "default", Rules: ReadPods}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{
				Namespace: "default", RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: UserSubject("bob"),
			}},
		},
	}
}

// PermissionIn returns the same ClusterPermission as Permission, in the namespace of another
// cluster.
func PermissionIn(cluster, name string) *rbacv1alpha1.ClusterPermission {
	cp := Permission(name)
	cp.Namespace = cluster
	return cp
}

// PermissionForAccount returns a ClusterPermission that allows only a ManagedServiceAccount to read
// pods in the namespace default.
func PermissionForAccount(namespace, name, account string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			Roles: &[]rbacv1alpha1.Role{{Namespace: "default", Rules: ReadPods}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{Namespace: "default", RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: &rbacv1.Subject{
				APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: account,
			}}},
		},
	}
}

// RoleRefTo returns a reference to a role that is not part of the ClusterPermission.
func RoleRefTo(kind, name string) rbacv1alpha1.RoleRef {
	return rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: kind, Name: &name}
}

// CreatePermission creates a ClusterPermission, which is deleted at the end of the test.
func CreatePermission(t *testing.T, client versioned.Interface, cp *rbacv1alpha1.ClusterPermission) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	created := Must(client.RbacV1alpha1().ClusterPermissions(cp.Namespace).Create(t.Context(), cp, metav1.CreateOptions{}))(t)
	DeletePermissionLater(t, client, created.Namespace, created.Name)
	return created
}

// DeletePermissionLater deletes a ClusterPermission, if it exists, at the end of the test.
func DeletePermissionLater(t *testing.T, client versioned.Interface, namespace, name string) {
	t.Helper()
	deleteLater(t, client.RbacV1alpha1().ClusterPermissions(namespace).Delete, name)
}

// GetPermission returns a ClusterPermission in the namespace Cluster1.
func (f *Fleet) GetPermission(ctx context.Context, name string) (*rbacv1alpha1.ClusterPermission, error) {
	return f.OCM.RbacV1alpha1().ClusterPermissions(Cluster1).Get(ctx, name, metav1.GetOptions{})
}

// HasCondition returns nil if a ClusterPermission has a condition with a status at its current
// generation, or an error that describes the condition.
func HasCondition(cp *rbacv1alpha1.ClusterPermission, conditionType string, status metav1.ConditionStatus) error {
	condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType)
	switch {
	case condition == nil:
		return fmt.Errorf("%s has no condition %s", cp.Name, conditionType)
	case condition.ObservedGeneration != cp.Generation:
		return fmt.Errorf("%s: observedGeneration of condition %s = %d, want %d", cp.Name, conditionType, condition.ObservedGeneration, cp.Generation)
	case condition.Status != status:
		return fmt.Errorf("%s: condition %s = %s (%s: %s), want %s", cp.Name, conditionType, condition.Status, condition.Reason, condition.Message, status)
	}
	return nil
}

// ConditionSays returns nil if a condition has a status and a message that contains all of the
// texts, or an error that describes the condition.
func ConditionSays(cp *rbacv1alpha1.ClusterPermission, conditionType string, status metav1.ConditionStatus, texts ...string) error {
	if err := HasCondition(cp, conditionType, status); err != nil {
		return err
	}
	message := meta.FindStatusCondition(cp.Status.Conditions, conditionType).Message
	for _, text := range texts {
		if !strings.Contains(message, text) {
			return fmt.Errorf("message of %s = %q, want it to contain %q", conditionType, message, text)
		}
	}
	return nil
}

// PermissionSays waits until a condition of a ClusterPermission has a status and a message that
// contains all of the texts, and returns the ClusterPermission.
func (f *Fleet) PermissionSays(t *testing.T, namespace, name, conditionType string, status metav1.ConditionStatus, texts ...string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	var cp *rbacv1alpha1.ClusterPermission
	Eventually(t, fmt.Sprintf("condition %s of ClusterPermission %s is %s and its message contains %q", conditionType, name, status, texts), func(ctx context.Context) error {
		var err error
		if cp, err = f.OCM.RbacV1alpha1().ClusterPermissions(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return ConditionSays(cp, conditionType, status, texts...)
	})
	return cp
}

// Applied waits until the status of a ClusterPermission reports, for its current generation, that
// all of its objects are applied. It returns the ClusterPermission.
func (f *Fleet) Applied(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	var cp *rbacv1alpha1.ClusterPermission
	Eventually(t, "ClusterPermission "+name+" is applied", func(ctx context.Context) error {
		var err error
		if cp, err = f.GetPermission(ctx, name); err != nil {
			return err
		}
		return errors.Join(
			HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue),
			HasCondition(cp, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue),
			HasCondition(cp, rbacv1alpha1.ConditionValidation, metav1.ConditionTrue))
	})
	return cp
}

// AwaitWorkCreated waits until a controller reports that it has created the ManifestWork of a
// ClusterPermission.
func AwaitWorkCreated(t *testing.T, client versioned.Interface, name string) {
	t.Helper()
	Eventually(t, "a controller reports that the ManifestWork of ClusterPermission "+name+" is created", func(ctx context.Context) error {
		cp, err := client.RbacV1alpha1().ClusterPermissions(Cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return HasCondition(cp, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	})
}
