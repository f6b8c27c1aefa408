package reconcile

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestKeepOfADeletedObject checks that Keep does not create an object again that the cache still contains: a denial may have
// deleted it.
func TestKeepOfADeletedObject(t *testing.T) {
	roles := fake.NewClientset().RbacV1().Roles("cluster1")
	keeper := Keeper[*rbacv1.Role]{
		What: "Role access", Client: roles,
		Cached: func(name string) (*rbacv1.Role, error) {
			return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name}}, nil
		},
		Wanted: &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "access"}},
		Fix:    func(*rbacv1.Role) (changed, replace bool) { return true, false },
	}
	if err := keeper.Keep(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("Keep() of a deleted object = %v, want a NotFound error", err)
	}
	if _, err := roles.Get(t.Context(), "access", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after Keep() = %v, want a NotFound error", err)
	}
}
