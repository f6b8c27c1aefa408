package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOn is the internal form of a v1alpha1.ManagedClusterAddOn.
type ManagedClusterAddOn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha1.ManagedClusterAddOnSpec   `json:"spec"`
	Status v1alpha1.ManagedClusterAddOnStatus `json:"status,omitempty"`

	// Mismatches are the registrations that were written in v1beta1 with fields that contradict each other. Validation
	// rejects them, so they are never stored.
	Mismatches []RegistrationMismatch `json:"-"`
}

// RegistrationMismatch contains the fields of a registration of v1beta1 that v1alpha1 cannot express.
type RegistrationMismatch struct {
	// Index is the index of the registration.
	Index                    int
	Type                     string
	KubeClient, CustomSigner bool
	// Driver is the driver, if another registration has another one.
	Driver string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOnList is a list of ManagedClusterAddOns.
type ManagedClusterAddOnList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedClusterAddOn
}
