package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultInstallNamespace is the namespace on managed clusters where the agents of add-ons run,
	// unless something else is said.
	DefaultInstallNamespace = "open-cluster-management-agent-addon"

	// InstallNamespaceAnnotation is spec.installNamespace of the version v1alpha1.
	InstallNamespaceAnnotation = "addon.open-cluster-management.io/v1alpha1-install-namespace"
)

// Condition types of a ManagedClusterAddOn.
const (
	// ConditionAvailable is True while the agent of the add-on runs on the managed cluster.
	ConditionAvailable = "Available"
	// ConditionDegraded is True while the add-on works in part only.
	ConditionDegraded = "Degraded"
	// ConditionProgressing is True while the add-on is installed, configured or upgraded.
	ConditionProgressing = "Progressing"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOn installs an add-on on one managed cluster: the one whose namespace it is in.
// Its name is that of the add-on's ClusterManagementAddOn. The add-on's manager on the hub installs
// it, and the registration agent of the cluster registers its agent and reports its health.
type ManagedClusterAddOn struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How the add-on is installed on this cluster.
	// +optional
	Spec ManagedClusterAddOnSpec `json:"spec"`

	// The observed state of the add-on on this cluster.
	// +optional
	Status ManagedClusterAddOnStatus `json:"status"`
}

// ManagedClusterAddOnSpec says how an add-on is installed on a managed cluster.
type ManagedClusterAddOnSpec struct {
	// Configurations of the add-on on this cluster. They override those of the
	// ClusterManagementAddOn of the same kind.
	// +optional
	// +listType=atomic
	Configs []AddOnConfig `json:"configs,omitempty"`
}

// RegistrationConfig says how the agent of an add-on registers with the hub. The registration agent
// requests credentials for each.
type RegistrationConfig struct {
	// With kubeClient the agent authenticates to the API server of the hub; with customSigner it
	// gets a certificate of a signer of its own.
	Type RegistrationType `json:"type"`

	// Only with the type kubeClient.
	// +optional
	KubeClient *KubeClientConfig `json:"kubeClient,omitempty"`

	// Only with the type customSigner, which requires it.
	// +optional
	CustomSigner *CustomSignerConfig `json:"customSigner,omitempty"`
}

// RegistrationType is what the agent of an add-on registers for.
// +enum
type RegistrationType string

const (
	// KubeClient is for access to the API server of the hub.
	KubeClient RegistrationType = "kubeClient"
	// CustomSigner is for a certificate of the add-on's own signer.
	CustomSigner RegistrationType = "customSigner"
)

// KubeClientConfig says how an agent authenticates to the API server of the hub.
type KubeClientConfig struct {
	// Who the agent is on the hub. If it is not set, the user is
	// system:open-cluster-management:cluster:<cluster>:addon:<add-on>:agent:<agent>.
	// +optional
	Subject KubeClientSubject `json:"subject,omitempty"`

	// How the agent authenticates: csr or token. The registration agent reports it.
	// +optional
	Driver string `json:"driver,omitempty"`
}

// CustomSignerConfig says which certificate the agent of an add-on gets.
type CustomSignerConfig struct {
	// The signer of the certificate.
	SignerName string `json:"signerName"`

	// The subject of the certificate. If it is not set, the user is
	// system:open-cluster-management:cluster:<cluster>:addon:<add-on>:agent:<agent>.
	// +optional
	Subject Subject `json:"subject,omitempty"`
}

// BaseSubject is a user and its groups.
type BaseSubject struct {
	// The name of the user.
	User string `json:"user"`

	// The groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// KubeClientSubject is who an agent is on the hub.
type KubeClientSubject struct {
	BaseSubject `json:",inline"`
}

// Subject is the subject of a certificate.
type Subject struct {
	BaseSubject `json:",inline"`

	// The organizational units of the subject.
	// +optional
	// +listType=atomic
	OrganizationUnits []string `json:"organizationUnits,omitempty"`
}

// ManagedClusterAddOnStatus is the observed state of an add-on on a managed cluster.
type ManagedClusterAddOnStatus struct {
	// The state of the add-on. The known types are Available, Degraded and Progressing; managers
	// of add-ons add others.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// Objects on the hub that belong to the add-on.
	// +optional
	// +listType=atomic
	RelatedObjects []ObjectReference `json:"relatedObjects,omitempty"`

	// The description of the add-on, copied from its ClusterManagementAddOn.
	// +optional
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty"`

	// The kinds of configurations that the add-on takes.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigGroupResource `json:"supportedConfigs,omitempty"`

	// The configurations in use.
	// +optional
	// +listType=atomic
	ConfigReferences []ConfigReference `json:"configReferences,omitempty"`

	// The namespace on the managed cluster of the add-on's Lease and of its credentials for the hub.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// How the agent of the add-on registers with the hub. The manager of the add-on says it.
	// +optional
	// +listType=atomic
	Registrations []RegistrationConfig `json:"registrations,omitempty"`

	// How the health of the add-on is known.
	// +optional
	HealthCheck HealthCheck `json:"healthCheck,omitempty"`
}

// ObjectReference names an object on the hub.
type ObjectReference struct {
	// The API group of the object.
	Group string `json:"group"`
	// The resource of the object.
	Resource string `json:"resource"`
	// The namespace of the object. Empty if it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// The name of the object.
	Name string `json:"name"`
}

// ConfigReference is a configuration in use.
type ConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The metadata.generation of the configuration that was read.
	LastObservedGeneration int64 `json:"lastObservedGeneration"`

	// The configuration that the add-on is to have.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`

	// The configuration that was applied last.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig"`
}

// HealthCheckMode is how the health of an add-on is known.
// +enum
type HealthCheckMode string

const (
	// HealthCheckLease is by a Lease that the agent of the add-on renews on the managed cluster.
	HealthCheckLease HealthCheckMode = "Lease"
	// HealthCheckCustomized is by what the add-on reports itself.
	HealthCheckCustomized HealthCheckMode = "Customized"
)

// HealthCheck says how the health of an add-on is known.
type HealthCheck struct {
	// With Lease the registration agent reads the Lease of the add-on; with Customized the add-on
	// reports its condition Available itself. Defaults to Lease.
	// +optional
	Mode HealthCheckMode `json:"mode,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOnList is a list of ManagedClusterAddOns.
type ManagedClusterAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedClusterAddOns.
	Items []ManagedClusterAddOn `json:"items"`
}
