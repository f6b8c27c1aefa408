package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AppliedManifestWork is the agent's record, on the managed cluster, of what it
// has applied for one ManifestWork of one hub. It owns the applied objects.
type AppliedManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which ManifestWork this is the record of.
	// +optional
	Spec AppliedManifestWorkSpec `json:"spec,omitempty"`

	// The applied objects.
	// +optional
	Status AppliedManifestWorkStatus `json:"status,omitempty"`
}

// AppliedManifestWorkSpec says which ManifestWork an AppliedManifestWork is the record of.
type AppliedManifestWorkSpec struct {
	// Hex SHA-256 of the URL of the hub.
	HubHash string `json:"hubHash"`

	// Identity of the agent; the hub hash unless the agent was given another.
	// +optional
	AgentID string `json:"agentID,omitempty"`

	// Name of the ManifestWork on the hub.
	ManifestWorkName string `json:"manifestWorkName"`
}

// AppliedManifestWorkStatus lists applied objects.
type AppliedManifestWorkStatus struct {
	// The applied objects.
	// +optional
	// +listType=atomic
	AppliedResources []AppliedManifestResourceMeta `json:"appliedResources,omitempty"`

	// When the agent began to wait before it evicts the objects of a work that the hub no longer has.
	// +optional
	EvictionStartTime *metav1.Time `json:"evictionStartTime,omitempty"`
}

// AppliedManifestResourceMeta names one applied object.
type AppliedManifestResourceMeta struct {
	// API group of the object; empty for the core group.
	// +optional
	Group string `json:"group"`

	// Resource of the object in plural, for example deployments.
	Resource string `json:"resource"`

	// Name of the object.
	Name string `json:"name"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace"`

	// API version of the object.
	Version string `json:"version"`

	// UID of the object; the agent deletes the object only while it has this UID.
	// +optional
	UID string `json:"uid,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AppliedManifestWorkList is a list of AppliedManifestWorks.
type AppliedManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The AppliedManifestWorks.
	Items []AppliedManifestWork `json:"items"`
}
