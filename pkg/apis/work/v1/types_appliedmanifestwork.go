package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AppliedManifestWork records, on a managed cluster, the objects that the agent has applied for one
// ManifestWork of one hub. It owns these objects.
type AppliedManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the ManifestWork.
	// +optional
	Spec AppliedManifestWorkSpec `json:"spec,omitempty"`

	// status lists the applied objects.
	// +optional
	Status AppliedManifestWorkStatus `json:"status,omitempty"`
}

// AppliedManifestWorkSpec identifies the ManifestWork of an AppliedManifestWork.
type AppliedManifestWorkSpec struct {
	// hubHash is the SHA-256 hash of the URL of the hub in hexadecimal.
	HubHash string `json:"hubHash"`

	// agentID is the identity of the agent. Agents use hubHash unless they are configured with another
	// identity.
	// +optional
	AgentID string `json:"agentID,omitempty"`

	// manifestWorkName is the name of the ManifestWork on the hub.
	ManifestWorkName string `json:"manifestWorkName"`
}

// AppliedManifestWorkStatus lists applied objects.
type AppliedManifestWorkStatus struct {
	// appliedResources is the list of applied objects.
	// +optional
	// +listType=atomic
	AppliedResources []AppliedManifestResourceMeta `json:"appliedResources,omitempty"`

	// evictionStartTime is the time at which the ManifestWork was found missing on the hub. The agent removes
	// the applied objects after a grace period.
	// +optional
	EvictionStartTime *metav1.Time `json:"evictionStartTime,omitempty"`
}

// AppliedManifestResourceMeta identifies one applied object.
type AppliedManifestResourceMeta struct {
	// group is the API group of the object. It is empty for the core group.
	// +optional
	Group string `json:"group"`

	// resource is the plural name of the resource, for example deployments.
	Resource string `json:"resource"`

	// name is the name of the object.
	Name string `json:"name"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped object.
	// +optional
	Namespace string `json:"namespace"`

	// version is the API version of the object.
	Version string `json:"version"`

	// uid is the UID of the object. The agent deletes the object only if it has this UID.
	// +optional
	UID string `json:"uid,omitempty"`
}
