// Package roleassignment renders the ClusterPermissions of MulticlusterRoleAssignments. It is pure.
package roleassignment

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

const (
	kindClusterRole = "ClusterRole"
	// readable is the maximum length of the readable part of a name.
	readable = 100
	// digits is the length of the hash in a name.
	digits = 16
)

// Name returns the name of the ClusterPermissions of a MulticlusterRoleAssignment. Assignments of the same name in
// different namespaces have different ClusterPermissions.
func Name(namespace, name string) string {
	// The readable part must not end with a separator, which may precede no other separator.
	prefix := strings.TrimRight(name[:min(len(name), readable)], "-.")
	return prefix + "-" + hash(namespace, name)
}

// bindingName returns the name of the binding of a grant on the managed clusters. It is unique on a cluster, because
// the name of the ClusterPermission is unique on the hub.
func bindingName(permission string, grant rbacv1beta1.Grant) string {
	return permission + "-" + hash(grant.Subject, grant.ClusterRole, grant.Namespace)
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}

// Grants returns the grants of a role assignment on each of its clusters.
func Grants(subject *rbacv1beta1.Subject, assignment *rbacv1beta1.RoleAssignment) []rbacv1beta1.Grant {
	grant := rbacv1beta1.Grant{Subject: subjectName(subjectOf(subject)), ClusterRole: assignment.ClusterRole}
	if len(assignment.TargetNamespaces) == 0 {
		return []rbacv1beta1.Grant{grant}
	}
	grants := make([]rbacv1beta1.Grant, 0, len(assignment.TargetNamespaces))
	for _, namespace := range assignment.TargetNamespaces {
		grant.Namespace = namespace
		grants = append(grants, grant)
	}
	return grants
}

// Granted returns the sorted grants of the ClusterPermission of a MulticlusterRoleAssignment. It ignores bindings that
// the server does not render.
func Granted(spec *rbacv1alpha1.ClusterPermissionSpec) []rbacv1beta1.Grant {
	var grants []rbacv1beta1.Grant
	add := func(role, namespace string, subject *rbacv1.Subject) {
		if subject != nil {
			grants = append(grants, rbacv1beta1.Grant{Subject: subjectName(*subject), ClusterRole: role, Namespace: namespace})
		}
	}
	for _, binding := range ptr.Deref(spec.ClusterRoleBindings, nil) {
		if binding.RoleRef != nil {
			add(binding.RoleRef.Name, "", binding.Subject)
		}
	}
	for _, binding := range ptr.Deref(spec.RoleBindings, nil) {
		if binding.RoleRef.Kind == kindClusterRole && binding.NamespaceSelector == nil {
			add(ptr.Deref(binding.RoleRef.Name, ""), binding.Namespace, binding.Subject)
		}
	}
	return Sorted(grants)
}

// Sorted sorts grants and removes duplicates.
func Sorted(grants []rbacv1beta1.Grant) []rbacv1beta1.Grant {
	slices.SortFunc(grants, func(a, b rbacv1beta1.Grant) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ClusterRole, b.ClusterRole))
	})
	return slices.Compact(grants)
}

// Permission renders the ClusterPermission with the given grants of a MulticlusterRoleAssignment for a cluster.
func Permission(a *rbacv1beta1.MulticlusterRoleAssignment, cluster string, grants []rbacv1beta1.Grant) *rbacv1alpha1.ClusterPermission {
	permission := &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster,
		Name:      Name(a.Namespace, a.Name),
		Labels:    map[string]string{rbacv1beta1.ManagedByLabel: rbacv1beta1.ManagedByValue, rbacv1beta1.NamespaceLabel: a.Namespace},
		Annotations: map[string]string{
			rbacv1beta1.NameAnnotation: a.Name, rbacv1beta1.UIDAnnotation: string(a.UID),
		},
	}}
	subject := subjectOf(&a.Spec.Subject)
	var everywhere []rbacv1alpha1.ClusterRoleBinding
	var namespaced []rbacv1alpha1.RoleBinding
	for _, grant := range Sorted(slices.Clone(grants)) {
		name := bindingName(permission.Name, grant)
		if grant.Namespace == "" {
			everywhere = append(everywhere, rbacv1alpha1.ClusterRoleBinding{
				Name: name, Subject: &subject,
				RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: grant.ClusterRole},
			})
			continue
		}
		namespaced = append(namespaced, rbacv1alpha1.RoleBinding{
			Name: name, Namespace: grant.Namespace, Subject: &subject,
			RoleRef: rbacv1alpha1.RoleRef{APIGroup: ptr.To(rbacv1.GroupName), Kind: kindClusterRole, Name: ptr.To(grant.ClusterRole)},
		})
	}
	if len(everywhere) > 0 {
		permission.Spec.ClusterRoleBindings = &everywhere
	}
	if len(namespaced) > 0 {
		permission.Spec.RoleBindings = &namespaced
	}
	return permission
}

func subjectOf(s *rbacv1beta1.Subject) rbacv1.Subject {
	subject := rbacv1.Subject{Kind: s.Kind, Name: s.Name, Namespace: ptr.Deref(s.Namespace, "")}
	if s.Kind != rbacv1.ServiceAccountKind {
		subject.APIGroup = rbacv1.GroupName
	}
	return subject
}

func subjectName(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return s.Kind + "/" + s.Namespace + ":" + s.Name
	}
	return s.Kind + "/" + s.Name
}

// SubjectName returns the subject as in Grant.
func SubjectName(subject *rbacv1beta1.Subject) string { return subjectName(subjectOf(subject)) }
