package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on managed clusters with a token that is rotated and reported to
// the hub. It is the same object as in the group authentication.open-cluster-management.io.
type ManagedServiceAccount v1beta1.ManagedServiceAccount

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
