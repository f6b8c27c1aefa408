package authentication

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBinding lets users of the hub have works act as a ManagedServiceAccount.
type ManagedServiceAccountBinding struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec ManagedServiceAccountBindingSpec
}

// ManagedServiceAccountBindingSpec says who may have works act as which account.
type ManagedServiceAccountBindingSpec struct {
	Ref      ManagedServiceAccountReference
	Subjects []rbacv1.Subject
}

// ManagedServiceAccountReference names a ManagedServiceAccount.
type ManagedServiceAccountReference struct {
	Namespace string
	Name      string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBindingList is a list of ManagedServiceAccountBindings.
type ManagedServiceAccountBindingList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManagedServiceAccountBinding
}
