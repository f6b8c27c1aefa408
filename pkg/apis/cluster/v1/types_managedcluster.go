package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterNameLabel labels the hub namespace of a managed cluster with the name of that cluster.
const ClusterNameLabel = "open-cluster-management.io/cluster-name"

// ManagedClusterFinalizer holds a deleted ManagedCluster until nothing of it is left on the hub.
const ManagedClusterFinalizer = "cluster.open-cluster-management.io/api-resource-cleanup"

// Reasons of the condition HubAcceptedManagedCluster.
const (
	// ReasonHubClusterAdminAccepted says that the cluster has its access to the hub.
	ReasonHubClusterAdminAccepted = "HubClusterAdminAccepted"
	// ReasonHubClusterAdminDenied says that it has none.
	ReasonHubClusterAdminDenied = "HubClusterAdminDenied"
	// ReasonError says that it could not be given its access yet.
	ReasonError = "Error"
)

// Reasons of the condition Deleting.
const (
	// ReasonResourceRemaining says that the agent has not removed all ManifestWorks yet.
	ReasonResourceRemaining = "ResourceRemaining"
	// ReasonDeletingError says that the server cannot delete them; it tries again.
	ReasonDeletingError = "DeletingError"
	// ReasonNoResource says that no ManifestWork is left.
	ReasonNoResource = "NoResource"
	// ReasonDrainTimedOut says that the server has not waited longer for the agent.
	ReasonDrainTimedOut = "DrainTimedOut"
)

// SkipClockSyncCheckAnnotation is on ManagedClusters. With the value "true", the hub does not compare
// the clock of the cluster with its own.
const SkipClockSyncCheckAnnotation = "registration.open-cluster-management.io/skip-clock-sync-check"

// CleanupPriorityAnnotation is on ManifestWorks. Its value, 0 to 100, orders their deletion when
// their ManagedCluster is deleted: the lowest first. Without a valid one it is 0.
const CleanupPriorityAnnotation = "open-cluster-management.io/cleanup-priority"

// Condition types of a ManagedCluster.
const (
	// ManagedClusterConditionDeleting is True while an accepted cluster is deleted. Its message
	// says what is left.
	ManagedClusterConditionDeleting = "Deleting"
	// ManagedClusterConditionHubAccepted is True once the hub has accepted the cluster.
	ManagedClusterConditionHubAccepted = "HubAcceptedManagedCluster"
	// ManagedClusterConditionJoined is True once the agent has joined the hub.
	ManagedClusterConditionJoined = "ManagedClusterJoined"
	// ManagedClusterConditionAvailable is True while the cluster's API server answers its agent.
	ManagedClusterConditionAvailable = "ManagedClusterConditionAvailable"
	// ManagedClusterConditionClockSynced is True while the clocks of hub and cluster agree.
	ManagedClusterConditionClockSynced = "ManagedClusterConditionClockSynced"
	// ManagedClusterConditionNamespacesListed is False while the sets of the cluster require more
	// namespaces than status.managedNamespaces can list. Other clusters do not have it.
	ManagedClusterConditionNamespacesListed = "ManagedNamespacesListed"
)

// ReasonTooManyNamespaces is the reason of the condition ManagedNamespacesListed.
const ReasonTooManyNamespaces = "TooManyNamespaces"

// MaxManagedNamespaces is how many namespaces the status of one ManagedCluster lists.
const MaxManagedNamespaces = 200

// MaxManagedNamespaceConditions is how many conditions a listed namespace may have, and
// MaxManagedNamespaceMessage how many bytes of the message of each are stored.
const (
	MaxManagedNamespaceConditions = 4
	MaxManagedNamespaceMessage    = 256
)

// Condition of a managed namespace, and its reasons.
const (
	// ConditionNamespaceAvailable is True once the agent has created and labelled the namespace.
	ConditionNamespaceAvailable = "NamespaceAvailable"
	// ReasonNamespaceApplied and ReasonNamespaceApplyFailed are its reasons.
	ReasonNamespaceApplied     = "NamespaceApplied"
	ReasonNamespaceApplyFailed = "NamespaceApplyFailed"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedCluster is a cluster that the hub manages. The hub namespace of the
// same name holds everything that concerns it.
type ManagedCluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired state of the cluster.
	// +optional
	Spec ManagedClusterSpec `json:"spec,omitempty"`

	// The observed state of the cluster.
	// +optional
	Status ManagedClusterStatus `json:"status,omitempty"`
}

// ManagedClusterSpec is the desired state of a ManagedCluster.
type ManagedClusterSpec struct {
	// How to reach the API server of the cluster.
	// +optional
	// +listType=atomic
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitzero"`

	// Whether the hub accepts the cluster. Changing it from false to true needs
	// the permission to update managedclusters/accept in the group register.open-cluster-management.io.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`

	// Seconds for which the lease of the cluster lasts; the cluster counts as
	// unavailable after five times as long without a renewal. Defaults to 60.
	// +optional
	// +default=60
	LeaseDurationSeconds *int32 `json:"leaseDurationSeconds,omitempty"`

	// Properties that keep workloads away from the cluster unless they tolerate them.
	// +optional
	// +listType=atomic
	Taints []Taint `json:"taints,omitzero"`
}

// ClientConfig says how to reach an API server.
type ClientConfig struct {
	// URL of the API server.
	URL string `json:"url"`

	// PEM certificates that verify the API server; the system's when not given.
	// +optional
	CABundle []byte `json:"caBundle,omitzero"`
}

// TaintEffect says what a taint does.
// +enum
type TaintEffect string

const (
	// TaintEffectNoSelect keeps the cluster out of selections, also those made before.
	TaintEffectNoSelect TaintEffect = "NoSelect"
	// TaintEffectPreferNoSelect keeps the cluster out of selections where possible.
	TaintEffectPreferNoSelect TaintEffect = "PreferNoSelect"
	// TaintEffectNoSelectIfNew keeps the cluster out of new selections.
	TaintEffectNoSelectIfNew TaintEffect = "NoSelectIfNew"
)

// Taint is a property that keeps workloads away from a cluster.
type Taint struct {
	// Key of the taint, a qualified name.
	Key string `json:"key"`

	// Value of the taint.
	// +optional
	Value string `json:"value,omitempty"`

	// NoSelect, PreferNoSelect or NoSelectIfNew.
	Effect TaintEffect `json:"effect"`

	// When the taint was added. Set by the server.
	// +optional
	// +nullable
	TimeAdded metav1.Time `json:"timeAdded,omitempty"`
}

// ResourceName names a resource of a cluster, for example cpu.
type ResourceName string

// ResourceList maps names of resources to quantities.
type ResourceList map[ResourceName]resource.Quantity

// ManagedClusterStatus is the observed state of a ManagedCluster.
type ManagedClusterStatus struct {
	// The state of the cluster. Known types are HubAcceptedManagedCluster,
	// ManagedClusterJoined, ManagedClusterConditionAvailable and ManagedClusterConditionClockSynced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// What the cluster has in all.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty"`

	// What of it workloads can use.
	// +optional
	Allocatable ResourceList `json:"allocatable,omitempty"`

	// Versions of what runs the cluster.
	// +optional
	Version ManagedClusterVersion `json:"version,omitempty"`

	// Facts that the cluster claims about itself.
	// +optional
	// +listType=map
	// +listMapKey=name
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`

	// Who decided whether the hub accepts the cluster. Set by the server.
	// +optional
	Acceptance *Acceptance `json:"acceptance,omitempty"`

	// The namespaces that the ManagedClusterSets of the cluster require on it, by set and
	// name. The server lists them; the agent creates them and reports their conditions. The server lists
	// at most 200; if there are more, the condition ManagedNamespacesListed is False.
	// +optional
	// +listType=map
	// +listMapKey=clusterSet
	// +listMapKey=name
	ManagedNamespaces []ClusterSetManagedNamespaceConfig `json:"managedNamespaces,omitempty"`
}

// ClusterSetManagedNamespaceConfig is a namespace that a ManagedClusterSet of a cluster requires on it.
type ClusterSetManagedNamespaceConfig struct {
	// Name of the namespace.
	Name string `json:"name"`

	// Name of the ManagedClusterSet that lists the namespace.
	ClusterSet string `json:"clusterSet"`

	// The state of the namespace, as the agent reports it. The known type is NamespaceAvailable.
	// The server stores at most 4 conditions, and the first 256 bytes of each message.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Acceptance is who decided whether the hub accepts a cluster.
type Acceptance struct {
	// Whether the hub accepts the cluster.
	Accepted bool `json:"accepted"`

	// Whether the hub has accepted the cluster at any time, so that something may have been made for it.
	// +optional
	EverAccepted bool `json:"everAccepted,omitempty"`

	// User who decided.
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`

	// When it was decided.
	// +optional
	// +nullable
	DecidedAt metav1.Time `json:"decidedAt,omitempty"`

	// Why, in the words of who decided.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Whether it was the cluster itself that left the hub. The server then deletes its ManagedCluster.
	// +optional
	Left bool `json:"left,omitempty"`

	// Users whose pending requests for the first certificate of an agent are approved with it.
	// +optional
	// +listType=atomic
	Requesters []string `json:"requesters,omitempty"`
}

// ManagedClusterVersion holds versions of what runs a cluster.
type ManagedClusterVersion struct {
	// Version of Kubernetes.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a fact that a cluster claims about itself.
type ManagedClusterClaim struct {
	// Name of the claim.
	Name string `json:"name"`

	// Value of the claim.
	Value string `json:"value"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterList is a list of ManagedClusters.
type ManagedClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedClusters.
	Items []ManagedCluster `json:"items"`
}
