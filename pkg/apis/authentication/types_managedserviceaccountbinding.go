package authentication

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBinding allows users of the hub to use the ServiceAccount of a ManagedServiceAccount as
// the executor of ManifestWorks in the namespace of the binding.
type ManagedServiceAccountBinding struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec ManagedServiceAccountBindingSpec
}

// ManagedServiceAccountBindingSpec specifies the users that may use an account as an executor.
type ManagedServiceAccountBindingSpec struct {
	Ref      ManagedServiceAccountReference
	Subjects []rbacv1.Subject
}

// ManagedServiceAccountReference refers to a ManagedServiceAccount.
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
