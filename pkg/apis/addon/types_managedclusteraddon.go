package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOn installs an add-on on the managed cluster of its namespace.
type ManagedClusterAddOn struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   ManagedClusterAddOnSpec
	Status ManagedClusterAddOnStatus
}

// ManagedClusterAddOnSpec specifies how an add-on is installed on a managed cluster.
type ManagedClusterAddOnSpec struct {
	InstallNamespace string
	Configs          []AddOnConfig
}

// RegistrationConfig specifies how the agent of an add-on registers with the hub.
type RegistrationConfig struct {
	SignerName string
	Subject    Subject
	// Mismatch is set if the registration was written in v1beta1 with fields that contradict each other. Validation
	// rejects it, so it is never stored.
	Mismatch *RegistrationMismatch
}

// RegistrationMismatch contains the fields of v1beta1 that v1alpha1 cannot express.
type RegistrationMismatch struct {
	Type                     string
	KubeClient, CustomSigner bool
	// Driver is the driver, if another registration has another one.
	Driver string
}

// Subject is the subject of a certificate.
type Subject struct {
	User              string
	Groups            []string
	OrganizationUnits []string
}

// ManagedClusterAddOnStatus is the observed state of an add-on on a managed cluster.
type ManagedClusterAddOnStatus struct {
	Conditions         []metav1.Condition
	RelatedObjects     []ObjectReference
	AddOnMeta          AddOnMeta
	AddOnConfiguration ConfigCoordinates
	SupportedConfigs   []ConfigGroupResource
	ConfigReferences   []ConfigReference
	Namespace          string
	Registrations      []RegistrationConfig
	HealthCheck        HealthCheck
	KubeClientDriver   string
}

// ObjectReference refers to an object on the hub.
type ObjectReference struct {
	Group     string
	Resource  string
	Namespace string
	Name      string
}

// ConfigReference is a configuration in use.
type ConfigReference struct {
	ConfigGroupResource
	ConfigReferent
	LastObservedGeneration int64
	DesiredConfig          *ConfigSpecHash
	LastAppliedConfig      *ConfigSpecHash
}

// HealthCheckMode specifies how the health of an add-on is determined.
type HealthCheckMode string

const (
	// HealthCheckLease uses a Lease that the agent of the add-on renews on the managed cluster.
	HealthCheckLease HealthCheckMode = "Lease"
	// HealthCheckCustomized uses the condition Available that the add-on reports itself.
	HealthCheckCustomized HealthCheckMode = "Customized"
)

// HealthCheck specifies how the health of an add-on is determined.
type HealthCheck struct {
	Mode HealthCheckMode
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOnList is a list of ManagedClusterAddOns.
type ManagedClusterAddOnList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedClusterAddOn
}
