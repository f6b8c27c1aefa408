package rbac

import (
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// The kinds of RBAC objects.
const (
	KindRole               = "Role"
	KindClusterRole        = "ClusterRole"
	KindRoleBinding        = "RoleBinding"
	KindClusterRoleBinding = "ClusterRoleBinding"
)

// Key identifies a role or a binding. The namespace of a ClusterRole or a ClusterRoleBinding is empty.
type Key struct{ Kind, Namespace, Name string }

// RoleKey returns the key of the role that a binding in a namespace refers to, or the
// zero Key if there cannot be such a role.
func RoleKey(ref rbacv1.RoleRef, namespace string) Key {
	switch {
	case ref.Kind == KindClusterRole:
		return Key{Kind: KindClusterRole, Name: ref.Name}
	case ref.Kind == KindRole && namespace != "":
		return Key{Kind: KindRole, Namespace: namespace, Name: ref.Name}
	}
	return Key{}
}

func (k Key) String() string {
	if k.Namespace != "" {
		return fmt.Sprintf("%s %q in namespace %q", k.Kind, k.Name, k.Namespace)
	}
	return fmt.Sprintf("%s %q", k.Kind, k.Name)
}

// Subject is a user or a group. A ServiceAccount is the user with its user name.
type Subject struct {
	Group bool
	Name  string
}

func (s Subject) compare(other Subject) int {
	if s.Group != other.Group {
		if other.Group {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.Name, other.Name)
}

// Binding is a binding as authorizers read it.
type Binding struct {
	Role Key
	// Subjects are sorted and different.
	Subjects []Subject
}

// NewBinding returns a binding. The namespace of a ClusterRoleBinding is empty.
func NewBinding(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) *Binding {
	b := &Binding{Role: RoleKey(ref, namespace), Subjects: make([]Subject, 0, len(subjects))}
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			b.Subjects = append(b.Subjects, Subject{Name: s.Name})
		case rbacv1.GroupKind:
			b.Subjects = append(b.Subjects, Subject{Group: true, Name: s.Name})
		case rbacv1.ServiceAccountKind:
			if in := cmp.Or(s.Namespace, namespace); in != "" {
				b.Subjects = append(b.Subjects, Subject{Name: serviceaccount.MakeUsername(in, s.Name)})
			}
		}
	}
	slices.SortFunc(b.Subjects, Subject.compare)
	b.Subjects = slices.Compact(b.Subjects)
	return b
}
