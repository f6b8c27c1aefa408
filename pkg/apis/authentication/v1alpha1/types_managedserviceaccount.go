package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on managed clusters with a token that is rotated and reported to
// the hub. Deprecated: use v1beta1, which has the same fields.
type ManagedServiceAccount struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the account.
	// +optional
	Spec v1beta1.ManagedServiceAccountSpec `json:"spec,omitempty"`

	// status is the observed state of the account. It is read-only.
	// +optional
	Status v1beta1.ManagedServiceAccountStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccountList is a list of ManagedServiceAccounts.
type ManagedServiceAccountList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of ManagedServiceAccounts.
	Items []ManagedServiceAccount `json:"items"`
}
