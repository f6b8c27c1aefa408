package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterNameLabel is set on the namespace of a managed cluster on the hub. Its value is the name of the cluster.
const ClusterNameLabel = "open-cluster-management.io/cluster-name"

// AgentVersionClaim is the claim of a ManagedCluster with the version of its agent.
const AgentVersionClaim = "agentversion.open-cluster-management.io"

// ManagedClusterFinalizer keeps a deleted ManagedCluster until the server has removed all its objects from the hub.
const ManagedClusterFinalizer = "cluster.open-cluster-management.io/api-resource-cleanup"

// Reasons of the condition HubAcceptedManagedCluster.
const (
	ReasonHubClusterAdminAccepted = "HubClusterAdminAccepted"
	ReasonHubClusterAdminDenied   = "HubClusterAdminDenied"
	// ReasonError is set if the server could not grant the access yet.
	ReasonError = "Error"
)

// Reasons of the condition Deleting.
const (
	// ReasonResourceRemaining is set until the agent has removed all ManifestWorks.
	ReasonResourceRemaining = "ResourceRemaining"
	// ReasonDeletingError is set if the server cannot delete ManifestWorks. The server retries.
	ReasonDeletingError = "DeletingError"
	ReasonNoResource    = "NoResource"
	// ReasonDrainTimedOut is set if the server stopped waiting for the agent.
	ReasonDrainTimedOut = "DrainTimedOut"
)

// SkipClockSyncCheckAnnotation on a ManagedCluster with the value "true" disables the comparison of the clock
// of the cluster with the clock of the hub.
const SkipClockSyncCheckAnnotation = "registration.open-cluster-management.io/skip-clock-sync-check"

// CleanupPriorityAnnotation on a ManifestWork is a number from 0 to 100. When the ManagedCluster is deleted,
// ManifestWorks with lower values are deleted first. Missing and invalid values count as 0.
const CleanupPriorityAnnotation = "open-cluster-management.io/cleanup-priority"

// Condition types of a ManagedCluster.
const (
	// ManagedClusterConditionDeleting is True while the objects of a deleted cluster are removed. The message
	// lists the remaining objects.
	ManagedClusterConditionDeleting = "Deleting"
	// ManagedClusterConditionHubAccepted is True once the hub has accepted the cluster.
	ManagedClusterConditionHubAccepted = "HubAcceptedManagedCluster"
	// ManagedClusterConditionJoined is True once the agent has joined the hub.
	ManagedClusterConditionJoined = "ManagedClusterJoined"
	// ManagedClusterConditionAvailable is True while the API server of the cluster responds to the agent.
	ManagedClusterConditionAvailable = "ManagedClusterConditionAvailable"
	// ManagedClusterConditionClockSynced is True while the clocks of the hub and the cluster agree.
	ManagedClusterConditionClockSynced = "ManagedClusterConditionClockSynced"
	// ManagedClusterConditionNamespacesListed is False while the sets of the cluster require more namespaces
	// than status.managedNamespaces can contain. Otherwise it is not set.
	ManagedClusterConditionNamespacesListed = "ManagedNamespacesListed"
)

// ReasonTooManyNamespaces is the reason of the condition ManagedNamespacesListed.
const ReasonTooManyNamespaces = "TooManyNamespaces"

// MaxManagedNamespaces bounds the namespaces in the status of a ManagedCluster.
const MaxManagedNamespaces = 200

const (
	// MaxManagedNamespaceConditions bounds the conditions of a managed namespace. MaxManagedNamespaceMessage
	// bounds the message of each, in bytes.
	MaxManagedNamespaceConditions = 4
	MaxManagedNamespaceMessage    = 256
)

// Condition of a managed namespace, and its reasons.
const (
	// ConditionNamespaceAvailable is True once the agent has created and labeled the namespace.
	ConditionNamespaceAvailable = "NamespaceAvailable"
	// ReasonNamespaceApplied and ReasonNamespaceApplyFailed are its reasons.
	ReasonNamespaceApplied     = "NamespaceApplied"
	ReasonNamespaceApplyFailed = "NamespaceApplyFailed"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedCluster represents a cluster that the hub manages. The objects of the cluster on the hub are in the
// namespace of the same name.
type ManagedCluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the cluster.
	// +optional
	Spec ManagedClusterSpec `json:"spec,omitempty"`

	// status is the observed state of the cluster. It is read-only.
	// +optional
	Status ManagedClusterStatus `json:"status,omitempty"`
}

// ManagedClusterSpec is the desired state of a ManagedCluster.
type ManagedClusterSpec struct {
	// managedClusterClientConfigs lists the addresses of the API server of the cluster.
	// +optional
	// +listType=atomic
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitzero"`

	// hubAcceptsClient specifies whether the hub accepts the cluster. Setting it to true, and changing it in
	// either direction, requires permission to update managedclusters/accept in the group
	// register.open-cluster-management.io. A cluster that leaves the hub may set its own to false. Defaults to
	// false.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`

	// leaseDurationSeconds is the duration of the lease of the cluster in seconds. If the agent does not renew
	// the lease for five times this duration, the cluster is unavailable. Defaults to 60.
	// +optional
	// +default=60
	LeaseDurationSeconds *int32 `json:"leaseDurationSeconds,omitempty"`

	// taints keep workloads away from the cluster unless they tolerate them. Client-side apply identifies a taint
	// by its key: use server-side apply for taints of the same key with several effects.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +patchStrategy=merge
	// +patchMergeKey=key
	Taints []Taint `json:"taints,omitzero" patchStrategy:"merge" patchMergeKey:"key"`
}

// ClientConfig is the address of an API server.
type ClientConfig struct {
	// url is the URL of the API server.
	URL string `json:"url"`

	// caBundle is the PEM bundle that verifies the API server. Defaults to the certificates of the system.
	// +optional
	CABundle []byte `json:"caBundle,omitzero"`
}

// TaintEffect is the effect of a taint.
// +enum
type TaintEffect string

const (
	// TaintEffectNoSelect excludes the cluster from selections, including existing ones.
	TaintEffectNoSelect TaintEffect = "NoSelect"
	// TaintEffectPreferNoSelect excludes the cluster from selections if possible.
	TaintEffectPreferNoSelect TaintEffect = "PreferNoSelect"
	// TaintEffectNoSelectIfNew excludes the cluster from new selections.
	TaintEffectNoSelectIfNew TaintEffect = "NoSelectIfNew"
)

// Taint keeps workloads away from a cluster.
type Taint struct {
	// key is the key of the taint. It must be a qualified name.
	Key string `json:"key"`

	// value is the value of the taint.
	// +optional
	Value string `json:"value,omitempty"`

	// effect is NoSelect, PreferNoSelect or NoSelectIfNew.
	Effect TaintEffect `json:"effect"`

	// timeAdded is the time at which the taint was added. The server sets it.
	// +optional
	// +nullable
	TimeAdded metav1.Time `json:"timeAdded,omitempty"`
}

// ResourceName is the name of a resource of a cluster, for example cpu.
type ResourceName string

// ResourceList maps resource names to quantities.
type ResourceList map[ResourceName]resource.Quantity

// ManagedClusterStatus is the observed state of a ManagedCluster.
type ManagedClusterStatus struct {
	// conditions report the state of the cluster. Known types are HubAcceptedManagedCluster,
	// ManagedClusterJoined, ManagedClusterConditionAvailable, ManagedClusterConditionClockSynced,
	// ManagedNamespacesListed, AgentWorkersResponding, ObjectsRetained and Deleting.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// capacity is the total of the resources of the cluster.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty"`

	// allocatable is the part of capacity that is available to workloads.
	// +optional
	Allocatable ResourceList `json:"allocatable,omitempty"`

	// version contains the versions of the cluster.
	// +optional
	Version ManagedClusterVersion `json:"version,omitempty"`

	// clusterClaims lists properties that the cluster reports about itself.
	// +optional
	// +listType=map
	// +listMapKey=name
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`

	// acceptance records the decision to accept or deny the cluster. The server sets it.
	// +optional
	Acceptance *Acceptance `json:"acceptance,omitempty"`

	// managedNamespaces lists the namespaces that the ManagedClusterSets of the cluster require on it, by set
	// and name. The server lists at most 200 of them, and sets the condition ManagedNamespacesListed to False
	// if there are more. The agent creates the namespaces and reports their conditions.
	// +optional
	// +listType=map
	// +listMapKey=clusterSet
	// +listMapKey=name
	ManagedNamespaces []ClusterSetManagedNamespaceConfig `json:"managedNamespaces,omitempty"`
}

// ClusterSetManagedNamespaceConfig is a namespace that a ManagedClusterSet requires on a cluster.
type ClusterSetManagedNamespaceConfig struct {
	// name is the name of the namespace.
	Name string `json:"name"`

	// clusterSet is the name of the ManagedClusterSet that lists the namespace.
	ClusterSet string `json:"clusterSet"`

	// conditions report the state of the namespace. The known type is NamespaceAvailable. The server stores at
	// most 4 conditions and the first 256 bytes of each message.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Acceptance records the decision to accept or deny a cluster.
type Acceptance struct {
	// accepted specifies whether the hub accepts the cluster.
	Accepted bool `json:"accepted"`

	// everAccepted specifies whether the hub has ever accepted the cluster, so that objects may exist for it.
	// +optional
	EverAccepted bool `json:"everAccepted,omitempty"`

	// decidedBy is the name of the user who decided.
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`

	// decidedAt is the time of the decision.
	// +optional
	// +nullable
	DecidedAt metav1.Time `json:"decidedAt,omitempty"`

	// reason is the reason that the user gave.
	// +optional
	Reason string `json:"reason,omitempty"`

	// left specifies whether the cluster itself left the hub. If it is true, the server deletes the
	// ManagedCluster.
	// +optional
	Left bool `json:"left,omitempty"`

	// requesters is the list of users. This decision approves their pending requests for the first certificate of
	// an agent.
	// +optional
	// +listType=atomic
	Requesters []string `json:"requesters,omitempty"`
}

// ManagedClusterVersion contains the versions of a cluster.
type ManagedClusterVersion struct {
	// kubernetes is the version of Kubernetes.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a property that a cluster reports about itself.
type ManagedClusterClaim struct {
	// name is the name of the claim.
	Name string `json:"name"`

	// value is the value of the claim.
	Value string `json:"value"`
}
