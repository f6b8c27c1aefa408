package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAcceptance accepts or denies a managed cluster. It is put to
// managedclusters/<name>/accept, and is not stored: what was decided is in the
// ManagedCluster.
type ManagedClusterAcceptance struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is that of the ManagedCluster; a uid or
	// resourceVersion, if given, must be that of the ManagedCluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The decision.
	Spec ManagedClusterAcceptanceSpec `json:"spec"`

	// What has come of it.
	// +optional
	Status ManagedClusterAcceptanceStatus `json:"status,omitempty"`
}

// ManagedClusterAcceptanceSpec is a decision about a cluster.
type ManagedClusterAcceptanceSpec struct {
	// Whether the hub accepts the cluster. To deny it takes all its access away at once.
	Accepted bool `json:"accepted"`

	// Why; up to 1024 characters, which the condition HubAcceptedManagedCluster shows.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Users whose pending requests for the first certificate of an agent of the cluster
	// are approved with it. By default they are who created the ManagedCluster and the
	// bootstrap identities of the hub.
	// +optional
	// +listType=set
	Requesters []string `json:"requesters,omitempty"`
}

// ManagedClusterAcceptanceStatus is what has come of a decision.
type ManagedClusterAcceptanceStatus struct {
	// Who decided.
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`

	// When it was decided.
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`

	// How the cluster shows the hub who it is.
	// +optional
	Driver RegistrationDriver `json:"driver,omitempty"`

	// Names of the CertificateSigningRequests that were approved.
	// +optional
	// +listType=atomic
	ApprovedRequests []string `json:"approvedRequests,omitempty"`
}
