package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +genclient:onlyVerbs=get,list
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Inventory describes the reports of a cluster. It is read-only, and has the name of the cluster in the
// namespace of that name. The agent of the cluster reports to its subresource sync.
type Inventory struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the state of the reports.
	// +optional
	Status InventoryStatus `json:"status,omitempty"`
}

// InventoryState specifies whether a cluster reports its resources.
type InventoryState string

const (
	// InventoryReporting is the state of a cluster that reports.
	InventoryReporting InventoryState = "Reporting"
	// InventorySilent is the state of a cluster that has not reported recently.
	InventorySilent InventoryState = "Silent"
	// InventoryIncomplete is the state of a cluster whose last reports may have been lost. The server requests
	// a full report.
	InventoryIncomplete InventoryState = "Incomplete"
	// InventoryAbsent is the state of a cluster that has never reported.
	InventoryAbsent InventoryState = "Absent"
)

// InventoryStatus is the state of the reports of a cluster.
type InventoryStatus struct {
	// state is Reporting, Silent, Incomplete or Absent.
	State InventoryState `json:"state"`

	// resources is the number of resources that searches can find. It does not include Secrets of managed
	// clusters.
	Resources int64 `json:"resources"`

	// edges is the number of known relations between resources.
	Edges int64 `json:"edges"`

	// lastReportTime is the time of the last report.
	// +optional
	LastReportTime *metav1.Time `json:"lastReportTime,omitempty"`
}
