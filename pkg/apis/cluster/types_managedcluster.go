package cluster

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedCluster represents a cluster that the hub manages.
type ManagedCluster struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ManagedClusterSpec
	Status ManagedClusterStatus
}

// ManagedClusterSpec is the desired state of a ManagedCluster.
type ManagedClusterSpec struct {
	ManagedClusterClientConfigs []ClientConfig
	HubAcceptsClient            bool
	LeaseDurationSeconds        *int32
	Taints                      []Taint
}

// ClientConfig is the address of an API server.
type ClientConfig struct {
	URL      string
	CABundle []byte
}

// TaintEffect is the effect of a taint.
type TaintEffect string

const (
	TaintEffectNoSelect       TaintEffect = "NoSelect"
	TaintEffectPreferNoSelect TaintEffect = "PreferNoSelect"
	TaintEffectNoSelectIfNew  TaintEffect = "NoSelectIfNew"
)

// Taint keeps workloads away from a cluster.
type Taint struct {
	Key       string
	Value     string
	Effect    TaintEffect
	TimeAdded metav1.Time
}

// ResourceName is the name of a resource of a cluster, for example cpu.
type ResourceName string

// ResourceList maps resource names to quantities.
type ResourceList map[ResourceName]resource.Quantity

// ManagedClusterStatus is the observed state of a ManagedCluster.
type ManagedClusterStatus struct {
	Conditions    []metav1.Condition
	Capacity      ResourceList
	Allocatable   ResourceList
	Version       ManagedClusterVersion
	ClusterClaims []ManagedClusterClaim
	Acceptance    *Acceptance

	ManagedNamespaces []ClusterSetManagedNamespaceConfig
}

// ClusterSetManagedNamespaceConfig is a namespace that a ManagedClusterSet requires on a cluster.
type ClusterSetManagedNamespaceConfig struct {
	Name       string
	ClusterSet string
	Conditions []metav1.Condition
}

// Acceptance records the decision to accept or deny a cluster.
type Acceptance struct {
	Accepted     bool
	EverAccepted bool
	DecidedBy    string
	DecidedAt    metav1.Time
	Reason       string
	Left         bool
	Requesters   []string
}

// ManagedClusterVersion contains the versions of a cluster.
type ManagedClusterVersion struct {
	Kubernetes string
}

// ManagedClusterClaim is a property that a cluster reports about itself.
type ManagedClusterClaim struct {
	Name  string
	Value string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterList is a list of ManagedClusters.
type ManagedClusterList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManagedCluster
}
