package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

var (
	readPods = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}
	readAll  = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get"}}}
)

func user(name string) *rbacv1.Subject {
	return &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// permission has one object of each of the four kinds, all named after it.
func permission(name string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: readAll},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: user("alice")},
			Roles:              &[]rbacv1alpha1.Role{{Namespace: "default", Rules: readPods}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{
				Namespace: "default", RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: user("bob"),
			}},
		},
	}
}

// create stores a ClusterPermission, and deletes it at the end of the test.
func create(t *testing.T, client versioned.Interface, cp *rbacv1alpha1.ClusterPermission) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	created, err := client.RbacV1alpha1().ClusterPermissions(cp.Namespace).Create(t.Context(), cp, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deleteLater(t, client, created.Namespace, created.Name)
	return created
}

func deleteLater(t *testing.T, client versioned.Interface, namespace, name string) {
	t.Helper()
	t.Cleanup(func() {
		err := client.RbacV1alpha1().ClusterPermissions(namespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func (f *fleet) get(ctx context.Context, name string) (*rbacv1alpha1.ClusterPermission, error) {
	return f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Get(ctx, name, metav1.GetOptions{})
}

func (f *fleet) work(ctx context.Context, cp *rbacv1alpha1.ClusterPermission) (*workv1.ManifestWork, error) {
	return f.ocm.WorkV1().ManifestWorks(cluster1).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
}

// worksOf returns the works of a ClusterPermission of that name, whether it exists or not.
func worksOf(ctx context.Context, client versioned.Interface, name string) ([]workv1.ManifestWork, error) {
	list, err := client.WorkV1().ManifestWorks(cluster1).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(work workv1.ManifestWork) bool {
		return !slices.ContainsFunc(work.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "ClusterPermission" && owner.Name == name
		})
	}), nil
}

// hasCondition tells why a ClusterPermission does not have a condition, observed
// at its present generation; nil if it has.
func hasCondition(cp *rbacv1alpha1.ClusterPermission, conditionType string, status metav1.ConditionStatus) error {
	condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType)
	switch {
	case condition == nil:
		return fmt.Errorf("%s has no condition %s", cp.Name, conditionType)
	case condition.ObservedGeneration != cp.Generation:
		return fmt.Errorf("%s: condition %s observes generation %d, not %d", cp.Name, conditionType, condition.ObservedGeneration, cp.Generation)
	case condition.Status != status:
		return fmt.Errorf("%s: condition %s is %s (%s: %s), not %s", cp.Name, conditionType, condition.Status, condition.Reason, condition.Message, status)
	}
	return nil
}

// applied waits until a ClusterPermission reports, for its present generation,
// that everything is applied, and returns it.
func (f *fleet) applied(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	var cp *rbacv1alpha1.ClusterPermission
	eventually(t, name+" is applied", func(ctx context.Context) error {
		var err error
		if cp, err = f.get(ctx, name); err != nil {
			return err
		}
		return errors.Join(
			hasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue),
			hasCondition(cp, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue),
			hasCondition(cp, rbacv1alpha1.ConditionValidation, metav1.ConditionTrue))
	})
	return cp
}

// object is one RBAC object of the managed cluster.
type object struct{ kind, namespace, name string }

func (o object) String() string {
	return strings.Trim(o.kind+" "+o.namespace+"/"+o.name, "/")
}

// objectsOf are the objects of permission(name).
func objectsOf(name string) []object {
	return []object{
		{"ClusterRole", "", name}, {"ClusterRoleBinding", "", name},
		{"Role", "default", name}, {"RoleBinding", "default", name},
	}
}

func read(ctx context.Context, client kubernetes.Interface, o object) (metav1.Object, error) {
	switch rbac := client.RbacV1(); o.kind {
	case "ClusterRole":
		return rbac.ClusterRoles().Get(ctx, o.name, metav1.GetOptions{})
	case "ClusterRoleBinding":
		return rbac.ClusterRoleBindings().Get(ctx, o.name, metav1.GetOptions{})
	case "Role":
		return rbac.Roles(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	case "RoleBinding":
		return rbac.RoleBindings(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	}
	return nil, fmt.Errorf("no such kind: %s", o.kind)
}

// present waits until the objects exist on the managed cluster.
func (f *fleet) present(t *testing.T, objects ...object) {
	t.Helper()
	for _, o := range objects {
		eventually(t, o.String()+" exists on the managed cluster", func(ctx context.Context) error {
			_, err := read(ctx, f.managed, o)
			return err
		})
	}
}

// absent waits until the objects do not exist on the managed cluster.
func (f *fleet) absent(t *testing.T, objects ...object) {
	t.Helper()
	for _, o := range objects {
		eventually(t, o.String()+" is gone from the managed cluster", func(ctx context.Context) error {
			_, err := read(ctx, f.managed, o)
			return isGone(err)
		})
	}
}

// isGone turns the error of a get into nil if what was asked for does not exist.
func isGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("still there")
	}
	return err
}

// noWorks waits until no work of a ClusterPermission of that name is left.
func (f *fleet) noWorks(t *testing.T, name string) {
	t.Helper()
	eventually(t, "no work of "+name+" is left", func(ctx context.Context) error {
		works, err := worksOf(ctx, f.ocm, name)
		if err == nil && len(works) > 0 {
			return fmt.Errorf("ManifestWork %s, finalizers %v", works[0].Name, works[0].Finalizers)
		}
		return err
	})
}
