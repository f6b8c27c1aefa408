package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Object identifies an RBAC object of the managed cluster.
type Object struct{ Kind, Namespace, Name string }

// NewObject returns an Object. The namespace is empty for cluster-scoped kinds.
func NewObject(kind, namespace, name string) Object { return Object{kind, namespace, name} }

// String returns the kind, namespace and name.
func (o Object) String() string {
	return strings.Trim(o.Kind+" "+o.Namespace+"/"+o.Name, "/")
}

// ObjectsOf returns the objects that Permission(name) creates.
func ObjectsOf(name string) []Object {
	return []Object{
		{"ClusterRole", "", name}, {"ClusterRoleBinding", "", name},
		{"Role", "default", name}, {"RoleBinding", "default", name},
	}
}

// ReadObject reads an RBAC object.
func ReadObject(ctx context.Context, client kubernetes.Interface, o Object) (metav1.Object, error) {
	switch rbac := client.RbacV1(); o.Kind {
	case "ClusterRole":
		return rbac.ClusterRoles().Get(ctx, o.Name, metav1.GetOptions{})
	case "ClusterRoleBinding":
		return rbac.ClusterRoleBindings().Get(ctx, o.Name, metav1.GetOptions{})
	case "Role":
		return rbac.Roles(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	case "RoleBinding":
		return rbac.RoleBindings(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	}
	return nil, fmt.Errorf("unsupported kind %q, want a kind of RBAC", o.Kind)
}

// Present waits until the objects exist on the managed cluster.
func (f *Fleet) Present(t *testing.T, objects ...Object) {
	t.Helper()
	for _, o := range objects {
		Eventually(t, o.String()+" exists on the managed cluster", func(ctx context.Context) error {
			_, err := ReadObject(ctx, f.ManagedClient, o)
			return err
		})
	}
}

// Absent waits until the objects do not exist on the managed cluster.
func (f *Fleet) Absent(t *testing.T, objects ...Object) {
	t.Helper()
	for _, o := range objects {
		Eventually(t, o.String()+" does not exist on the managed cluster", func(ctx context.Context) error {
			_, err := ReadObject(ctx, f.ManagedClient, o)
			return IsGone(err)
		})
	}
}
