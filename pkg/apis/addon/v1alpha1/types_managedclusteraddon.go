package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultInstallNamespace is the default namespace of the agents of add-ons on managed clusters.
	DefaultInstallNamespace = "open-cluster-management-agent-addon"

	// KubeAPIServerClientSigner is the signer of client certificates for the API server of the hub.
	KubeAPIServerClientSigner = "kubernetes.io/kube-apiserver-client"
)

// Condition types of a ManagedClusterAddOn.
const (
	// ConditionAvailable is True while the agent of the add-on runs on the managed cluster.
	ConditionAvailable = "Available"
	// ConditionDegraded is True while the add-on works only partially.
	ConditionDegraded = "Degraded"
	// ConditionProgressing is True while the add-on is installed, configured or upgraded.
	ConditionProgressing = "Progressing"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterAddOn installs an add-on on the managed cluster of its namespace. It has the name of the
// ClusterManagementAddOn. The manager of the add-on installs it, and the registration agent of the cluster
// registers the agent of the add-on and reports its health.
type ManagedClusterAddOn struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies how the add-on is installed on this cluster.
	// +optional
	Spec ManagedClusterAddOnSpec `json:"spec"`

	// status is the observed state of the add-on on this cluster.
	// +optional
	Status ManagedClusterAddOnStatus `json:"status"`
}

// ManagedClusterAddOnSpec specifies how an add-on is installed on a managed cluster.
type ManagedClusterAddOnSpec struct {
	// installNamespace is the namespace of the agent of the add-on on the managed cluster. Deprecated: use an
	// AddOnDeploymentConfig. Defaults to open-cluster-management-agent-addon.
	// +optional
	// +default="open-cluster-management-agent-addon"
	InstallNamespace string `json:"installNamespace,omitempty"`

	// configs lists the configurations of the add-on on this cluster. They override configurations of the same
	// kind in the ClusterManagementAddOn.
	// +optional
	// +listType=atomic
	Configs []AddOnConfig `json:"configs,omitzero"`
}

// RegistrationConfig specifies how the agent of an add-on registers with the hub. The registration agent
// requests credentials for each RegistrationConfig.
type RegistrationConfig struct {
	// signerName is the signer of the certificate. A certificate of kubernetes.io/kube-apiserver-client
	// authenticates the agent to the hub.
	SignerName string `json:"signerName"`

	// subject is the subject of the certificate. Defaults to the user
	// system:open-cluster-management:cluster:<cluster>:addon:<add-on>:agent:<agent>.
	// +optional
	Subject Subject `json:"subject,omitempty"`
}

// Subject is the subject of a certificate.
type Subject struct {
	// user is the name of the user.
	User string `json:"user"`

	// groups is the list of groups of the user.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`

	// organizationUnit is the list of organizational units of the subject.
	// +optional
	// +listType=atomic
	OrganizationUnits []string `json:"organizationUnit,omitempty"`
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

	// addOnConfiguration refers to the configuration. Deprecated: use configReferences.
	// +optional
	AddOnConfiguration ConfigCoordinates `json:"addOnConfiguration,omitempty"`

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

	// kubeClientDriver is csr or token. It specifies how the agent of the add-on authenticates to the API
	// server of the hub. The registration agent reports it.
	// +optional
	KubeClientDriver string `json:"kubeClientDriver,omitempty"`
}

// ObjectReference refers to an object on the hub.
type ObjectReference struct {
	// group is the API group of the object.
	Group string `json:"group"`
	// resource is the plural name of the resource of the object.
	Resource string `json:"resource"`
	// namespace is the namespace of the object. It is empty for a cluster-scoped object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the object.
	Name string `json:"name"`
}

// ConfigReference is a configuration in use.
type ConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The configuration. Deprecated: see desiredConfig.
	ConfigReferent `json:",inline"`

	// lastObservedGeneration is the metadata.generation of the configuration that was read.
	LastObservedGeneration int64 `json:"lastObservedGeneration"`

	// desiredConfig is the desired configuration of the add-on.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`

	// lastAppliedConfig is the configuration that was last applied.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig"`
}

// HealthCheckMode specifies how the health of an add-on is determined.
// +enum
type HealthCheckMode string

const (
	// HealthCheckLease uses a Lease that the agent of the add-on renews on the managed cluster.
	HealthCheckLease HealthCheckMode = "Lease"
	// HealthCheckCustomized uses the condition Available that the add-on reports itself.
	HealthCheckCustomized HealthCheckMode = "Customized"
)

// HealthCheck specifies how the health of an add-on is determined.
type HealthCheck struct {
	// mode is Lease or Customized. With Lease, the registration agent reads the Lease of the add-on. With
	// Customized, the add-on reports its condition Available itself. Defaults to Lease.
	// +optional
	Mode HealthCheckMode `json:"mode,omitempty"`
}
