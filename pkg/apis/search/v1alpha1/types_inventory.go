package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +genclient:onlyVerbs=get,list
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Inventory tells what is known of the resources of a cluster. It is read-only and
// has the name of the cluster, in the namespace of that name. The cluster's agent reports
// to its subresource sync.
type Inventory struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is known.
	// +optional
	Status InventoryStatus `json:"status,omitempty"`
}

// InventoryState tells whether a cluster reports.
type InventoryState string

const (
	// InventoryReporting is the state of a cluster that reports.
	InventoryReporting InventoryState = "Reporting"
	// InventorySilent is that of a cluster that has reported, but not lately.
	InventorySilent InventoryState = "Silent"
	// InventoryIncomplete is that of a cluster whose last reports may have been lost, so
	// that it is asked to report everything again.
	InventoryIncomplete InventoryState = "Incomplete"
	// InventoryAbsent is that of a cluster that has never reported.
	InventoryAbsent InventoryState = "Absent"
)

// InventoryStatus is what is known of the resources of a cluster.
type InventoryStatus struct {
	// State is Reporting, Silent, Incomplete or Absent.
	State InventoryState `json:"state"`

	// Resources is how many resources there are that somebody may find: without Secrets of
	// managed clusters.
	Resources int64 `json:"resources"`

	// Edges is how many relations between them are known.
	Edges int64 `json:"edges"`

	// LastReportTime is when the cluster last reported.
	// +optional
	LastReportTime *metav1.Time `json:"lastReportTime,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InventoryList is a list of Inventories.
type InventoryList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The Inventories.
	Items []Inventory `json:"items"`
}
