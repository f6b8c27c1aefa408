package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
)

// InstallNamespaceAnnotation contains the field spec.installNamespace of the version v1alpha1.
const InstallNamespaceAnnotation = "addon.open-cluster-management.io/v1alpha1-install-namespace"

// ManagedClusterAddOnSpec specifies how an add-on is installed on a managed cluster.
type ManagedClusterAddOnSpec struct {
	// configs lists the configurations of the add-on on this cluster. They override configurations of the same
	// kind in the ClusterManagementAddOn.
	// +optional
	// +listType=atomic
	Configs []AddOnConfig `json:"configs,omitzero"`
}

// RegistrationConfig specifies how the agent of an add-on registers with the hub. The registration agent
// requests credentials for each RegistrationConfig.
type RegistrationConfig struct {
	// type is kubeClient or customSigner. With kubeClient, the agent authenticates to the API server of the
	// hub. With customSigner, it gets a certificate of another signer.
	Type RegistrationType `json:"type"`

	// kubeClient contains the settings for type kubeClient.
	// +optional
	KubeClient *KubeClientConfig `json:"kubeClient,omitempty"`

	// customSigner contains the settings for type customSigner. It is required if type is customSigner.
	// +optional
	CustomSigner *CustomSignerConfig `json:"customSigner,omitempty"`
}

// RegistrationType specifies the credentials of the agent of an add-on.
// +enum
type RegistrationType string

const (
	// KubeClient is the type of credentials for the API server of the hub.
	KubeClient RegistrationType = "kubeClient"
	// CustomSigner is the type of a certificate of another signer.
	CustomSigner RegistrationType = "customSigner"
)

// KubeClientConfig specifies how an agent authenticates to the API server of the hub.
type KubeClientConfig struct {
	// subject is the identity of the agent on the hub. Defaults to the user
	// system:open-cluster-management:cluster:<cluster>:addon:<add-on>:agent:<agent>.
	// +optional
	Subject KubeClientSubject `json:"subject,omitempty"`

	// driver is csr or token. The registration agent reports it.
	// +optional
	Driver string `json:"driver,omitempty"`
}

// CustomSignerConfig specifies the certificate of the agent of an add-on.
type CustomSignerConfig struct {
	// signerName is the signer of the certificate.
	SignerName string `json:"signerName"`

	// subject is the subject of the certificate. Defaults to the user
	// system:open-cluster-management:cluster:<cluster>:addon:<add-on>:agent:<agent>.
	// +optional
	Subject Subject `json:"subject,omitempty"`
}

// BaseSubject is a user with its groups.
type BaseSubject struct {
	// user is the name of the user.
	User string `json:"user"`

	// groups is the list of groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// KubeClientSubject is the identity of an agent on the hub.
type KubeClientSubject struct {
	BaseSubject `json:",inline"`
}

// Subject is the subject of a certificate.
type Subject struct {
	BaseSubject `json:",inline"`

	// organizationUnits is the list of organizational units of the subject.
	// +optional
	// +listType=atomic
	OrganizationUnits []string `json:"organizationUnits,omitempty"`
}

// ManagedClusterAddOnStatus is the observed state of an add-on on a managed cluster.
type ManagedClusterAddOnStatus struct {
	// conditions report the state of the add-on. Known types are Available, Degraded and Progressing. Managers
	// of add-ons may add others.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// relatedObjects lists objects on the hub that belong to the add-on.
	// +optional
	// +listType=atomic
	RelatedObjects []ObjectReference `json:"relatedObjects,omitempty"`

	// addOnMeta is the description of the add-on, copied from its ClusterManagementAddOn.
	// +optional
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty"`

	// supportedConfigs lists the kinds of configurations of the add-on.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigGroupResource `json:"supportedConfigs,omitempty"`

	// configReferences lists the configurations in use.
	// +optional
	// +listType=atomic
	ConfigReferences []ConfigReference `json:"configReferences,omitempty"`

	// namespace is the namespace on the managed cluster of the Lease of the add-on and of its credentials for
	// the hub.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// registrations specifies how the agent of the add-on registers with the hub. The manager of the add-on
	// sets it.
	// +optional
	// +listType=atomic
	Registrations []RegistrationConfig `json:"registrations,omitempty"`

	// healthCheck specifies how the health of the add-on is determined.
	// +optional
	HealthCheck HealthCheck `json:"healthCheck,omitempty"`
}

// ConfigReference is a configuration in use.
type ConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// lastObservedGeneration is the metadata.generation of the configuration that was read.
	LastObservedGeneration int64 `json:"lastObservedGeneration"`

	// desiredConfig is the desired configuration of the add-on.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`

	// lastAppliedConfig is the configuration that was last applied.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig"`
}

// HealthCheck specifies how the health of an add-on is determined.
type HealthCheck v1alpha1.HealthCheck
