package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOn installs an add-on on one managed cluster: the one whose namespace it is in.
// Its name is that of the add-on's ClusterManagementAddOn. The add-on's manager on the hub installs
// it, and the registration agent of the cluster registers its agent and reports its health.
type ManagedClusterAddOn struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   ManagedClusterAddOnSpec
	Status ManagedClusterAddOnStatus
}

// ManagedClusterAddOnSpec says how an add-on is installed on a managed cluster.
type ManagedClusterAddOnSpec struct {
	InstallNamespace string
	Configs          []AddOnConfig
}

// RegistrationConfig says how the agent of an add-on registers with the hub. The registration agent
// requests a certificate for each.
type RegistrationConfig struct {
	SignerName string
	Subject    Subject
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

// ObjectReference names an object on the hub.
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

// HealthCheckMode is how the health of an add-on is known.
type HealthCheckMode string

const (
	// HealthCheckLease is by a Lease that the agent of the add-on renews on the managed cluster.
	HealthCheckLease HealthCheckMode = "Lease"
	// HealthCheckCustomized is by what the add-on reports itself.
	HealthCheckCustomized HealthCheckMode = "Customized"
)

// HealthCheck says how the health of an add-on is known.
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
