package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Object is a role or a binding.
type Object struct {
	Key Key
	// Rules are the rules of a role. If Opaque is set, they are unknown, because the
	// cluster aggregates them or they cannot be read.
	Rules  []rbacv1.PolicyRule
	Opaque bool
	// RoleRef and Subjects are set for a binding.
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// IsRole reports whether the object is a Role or a ClusterRole.
func (o *Object) IsRole() bool { return o.Key.Kind == KindRole || o.Key.Kind == KindClusterRole }

// FromTyped returns the Object of a typed role or binding, and false for any other object.
func FromTyped(obj any) (Object, bool) {
	switch o := obj.(type) {
	case *rbacv1.Role:
		return Object{Key: Key{KindRole, o.Namespace, o.Name}, Rules: o.Rules}, true
	case *rbacv1.ClusterRole:
		return Object{Key: Key{KindClusterRole, "", o.Name}, Rules: o.Rules}, true
	case *rbacv1.RoleBinding:
		return Object{Key: Key{KindRoleBinding, o.Namespace, o.Name}, RoleRef: o.RoleRef, Subjects: o.Subjects}, true
	case *rbacv1.ClusterRoleBinding:
		return Object{Key: Key{KindClusterRoleBinding, "", o.Name}, RoleRef: o.RoleRef, Subjects: o.Subjects}, true
	}
	return Object{}, false
}

// ParseManifest returns the role or binding that a manifest delivers, and false if the manifest delivers neither.
func ParseManifest(raw []byte) (Object, bool) {
	var head metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &head) != nil || head.APIVersion != rbacv1.SchemeGroupVersion.String() {
		return Object{}, false
	}
	o := Object{Key: Key{Kind: head.Kind, Namespace: head.Namespace, Name: head.Name}}
	switch head.Kind {
	case KindClusterRole, KindClusterRoleBinding:
		o.Key.Namespace = ""
	case KindRole, KindRoleBinding:
		if head.Namespace == "" {
			return Object{}, false
		}
	default:
		return Object{}, false
	}
	var content struct {
		Rules           *[]rbacv1.PolicyRule    `json:"rules"`
		AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
		Subjects        []rbacv1.Subject        `json:"subjects"`
		RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	}
	err := json.Unmarshal(raw, &content)
	if !o.IsRole() {
		o.RoleRef, o.Subjects = content.RoleRef, content.Subjects
		return o, err == nil && (o.RoleRef.APIGroup == "" || o.RoleRef.APIGroup == rbacv1.GroupName)
	}
	o.Opaque = err != nil || content.AggregationRule != nil
	if content.Rules != nil {
		o.Rules = *content.Rules
	}
	// A manifest of a role without the field rules only checks that the role exists.
	return o, content.Rules != nil || o.Opaque
}
