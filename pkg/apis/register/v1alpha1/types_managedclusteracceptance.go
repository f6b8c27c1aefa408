package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAcceptance accepts or denies a managed cluster. Clients update managedclusters/<name>/accept
// with it. It is not stored: the ManagedCluster records the decision.
type ManagedClusterAcceptance struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is the name of the ManagedCluster. If uid or resourceVersion is set,
	// it must match the ManagedCluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision.
	Spec ManagedClusterAcceptanceSpec `json:"spec"`

	// status is the result of the decision. It is read-only.
	// +optional
	Status ManagedClusterAcceptanceStatus `json:"status,omitempty"`
}

// ManagedClusterAcceptanceSpec is the decision about a cluster.
type ManagedClusterAcceptanceSpec struct {
	// accepted specifies whether the hub accepts the cluster. Denying a cluster revokes all its access
	// immediately.
	Accepted bool `json:"accepted"`

	// reason is the reason of the decision, of at most 1024 characters. The condition HubAcceptedManagedCluster
	// contains it.
	// +optional
	Reason string `json:"reason,omitempty"`

	// requesters is the list of users whose pending requests for the first certificate of an agent of the
	// cluster are approved with this decision. Defaults to the user who created the ManagedCluster and the
	// bootstrap identities of the hub.
	// +optional
	// +listType=set
	Requesters []string `json:"requesters,omitempty"`
}

// ManagedClusterAcceptanceStatus is the result of a decision.
type ManagedClusterAcceptanceStatus struct {
	// decidedBy is the name of the user who decided.
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`

	// decidedAt is the time of the decision.
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`

	// driver is the registration driver of the cluster.
	// +optional
	Driver RegistrationDriver `json:"driver,omitempty"`

	// approvedRequests lists the names of the CertificateSigningRequests that were approved.
	// +optional
	// +listType=atomic
	ApprovedRequests []string `json:"approvedRequests,omitempty"`
}
