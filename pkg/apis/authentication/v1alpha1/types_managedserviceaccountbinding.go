package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountBinding allows users of the hub to use the ServiceAccount of a ManagedServiceAccount as
// the executor of ManifestWorks in the namespace of the binding. Writing a binding requires the verb bind on
// the ManagedServiceAccount.
type ManagedServiceAccountBinding struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the ManagedServiceAccount and its users.
	// +optional
	Spec ManagedServiceAccountBindingSpec `json:"spec,omitempty"`
}

// ManagedServiceAccountBindingSpec specifies the users that may use a ManagedServiceAccount as an
// executor.
type ManagedServiceAccountBindingSpec struct {
	// ref refers to the ManagedServiceAccount. It is immutable.
	Ref ManagedServiceAccountReference `json:"ref"`

	// subjects is the list of users, groups and service accounts of the hub that may use the
	// ManagedServiceAccount.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// ManagedServiceAccountReference refers to a ManagedServiceAccount.
type ManagedServiceAccountReference struct {
	// namespace is the namespace of the ManagedServiceAccount. It must be the namespace of the binding, which is the
	// default.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the ManagedServiceAccount.
	Name string `json:"name"`
}
