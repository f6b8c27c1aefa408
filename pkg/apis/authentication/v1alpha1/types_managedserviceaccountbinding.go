package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBinding lets users of the hub have the ManifestWorks of a
// cluster act as a ManagedServiceAccount of that cluster: whom it names may name
// the account's ServiceAccount as the executor of works in this namespace. To
// write one takes the verb bind on the account.
type ManagedServiceAccountBinding struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Who may have works act as which account.
	// +optional
	Spec ManagedServiceAccountBindingSpec `json:"spec,omitempty"`
}

// ManagedServiceAccountBindingSpec says who may have works act as which account.
type ManagedServiceAccountBindingSpec struct {
	// The account. It cannot be changed.
	Ref ManagedServiceAccountReference `json:"ref"`

	// The users, groups and service accounts of the hub who may.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// ManagedServiceAccountReference names a ManagedServiceAccount.
type ManagedServiceAccountReference struct {
	// Namespace of the account: that of the binding, which is also the default.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the account.
	Name string `json:"name"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBindingList is a list of ManagedServiceAccountBindings.
type ManagedServiceAccountBindingList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedServiceAccountBindings.
	Items []ManagedServiceAccountBinding `json:"items"`
}
