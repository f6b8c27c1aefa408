package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types of an install strategy.
const (
	// InstallStrategyManual is the strategy of add-ons whose ManagedClusterAddOns are created by users or controllers.
	InstallStrategyManual = "Manual"
	// InstallStrategyPlacements is the strategy of add-ons that are installed on the clusters of Placements.
	InstallStrategyPlacements = "Placements"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOn registers an add-on that can be installed on managed clusters, with its default
// configurations and its install strategy. A ManagedClusterAddOn of the same name in the namespace of a cluster
// installs it on the cluster.
type ClusterManagementAddOn struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the add-on and its install strategy.
	// +optional
	Spec ClusterManagementAddOnSpec `json:"spec"`

	// status reports the progress of the installation.
	// +optional
	Status ClusterManagementAddOnStatus `json:"status,omitempty"`
}

// ClusterManagementAddOnSpec describes an add-on and its install strategy.
type ClusterManagementAddOnSpec struct {
	// addOnMeta is the description of the add-on.
	// +optional
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty"`

	// addOnConfiguration refers to the configuration. Deprecated: use supportedConfigs.
	// +optional
	AddOnConfiguration ConfigCoordinates `json:"addOnConfiguration,omitempty"`

	// supportedConfigs lists the kinds of configurations of the add-on.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigMeta `json:"supportedConfigs,omitzero"`

	// installStrategy selects the clusters to install the add-on on.
	// +optional
	InstallStrategy InstallStrategy `json:"installStrategy,omitempty"`
}

// InstallStrategy selects the clusters to install an add-on on.
type InstallStrategy struct {
	// type is Manual or Placements. With Manual, the add-on is installed on clusters with a
	// ManagedClusterAddOn. With Placements, it is installed on the clusters that the placements select.
	// Defaults to Manual.
	// +optional
	// +default="Manual"
	Type string `json:"type,omitempty"`

	// placements lists the Placements that select the clusters. If several select a cluster, the last one
	// applies. Client-side apply identifies an entry by its name: use server-side apply for Placements of the
	// same name in several namespaces.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	Placements []PlacementStrategy `json:"placements,omitzero" patchStrategy:"merge" patchMergeKey:"name"`
}

// PlacementRef refers to a Placement.
type PlacementRef struct {
	// namespace is the namespace of the Placement.
	Namespace string `json:"namespace"`

	// name is the name of the Placement.
	Name string `json:"name"`
}

// PlacementStrategy specifies how an add-on is installed on the clusters of a Placement.
type PlacementStrategy struct {
	// The Placement.
	PlacementRef `json:",inline"`

	// configs lists the configurations of the add-on on the clusters of this Placement.
	// +optional
	// +listType=atomic
	Configs []AddOnConfig `json:"configs,omitzero"`

	// rolloutStrategy specifies how a change of a configuration is rolled out.
	// +optional
	RolloutStrategy RolloutStrategy `json:"rolloutStrategy,omitempty"`
}

// RolloutType specifies how a change is rolled out.
// +enum
type RolloutType string

const (
	// RolloutTypeAll changes all clusters at once.
	RolloutTypeAll RolloutType = "All"
	// RolloutTypeProgressive changes a limited number of clusters at a time.
	RolloutTypeProgressive RolloutType = "Progressive"
	// RolloutTypeProgressivePerGroup changes the decision groups of a Placement one after another.
	RolloutTypeProgressivePerGroup RolloutType = "ProgressivePerGroup"
)

// RolloutStrategy specifies how a change is rolled out.
type RolloutStrategy struct {
	// type is All, Progressive or ProgressivePerGroup. Defaults to All.
	// +optional
	// +default="All"
	Type RolloutType `json:"type,omitempty"`

	// all contains the settings for type All.
	// +optional
	All *RolloutAll `json:"all,omitempty"`

	// progressive contains the settings for type Progressive.
	// +optional
	Progressive *RolloutProgressive `json:"progressive,omitempty"`

	// progressivePerGroup contains the settings for type ProgressivePerGroup.
	// +optional
	ProgressivePerGroup *RolloutProgressivePerGroup `json:"progressivePerGroup,omitempty"`
}

// RolloutConfig specifies when a rollout continues and when it fails.
type RolloutConfig struct {
	// minSuccessTime is the duration for which a cluster must be healthy before the rollout continues, for
	// example 5m.
	// +optional
	MinSuccessTime *string `json:"minSuccessTime,omitempty"`

	// progressDeadline is the duration after which an unhealthy cluster has failed, for example 10m, or None
	// for no deadline.
	// +optional
	ProgressDeadline *string `json:"progressDeadline,omitempty"`

	// maxFailures is the number or percentage of clusters that may fail before the rollout stops.
	// +optional
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
}

// MandatoryDecisionGroup identifies a decision group of a Placement by name or index.
type MandatoryDecisionGroup struct {
	// groupName is the name of the group.
	// +optional
	GroupName *string `json:"groupName,omitempty"`

	// groupIndex is the index of the group.
	// +optional
	GroupIndex *int32 `json:"groupIndex,omitempty"`
}

// MandatoryDecisionGroups lists groups that must succeed before all others.
type MandatoryDecisionGroups struct {
	// mandatoryDecisionGroups lists groups that must succeed before all others, in this order.
	// +optional
	// +listType=atomic
	MandatoryDecisionGroups []MandatoryDecisionGroup `json:"mandatoryDecisionGroups,omitzero"`
}

// RolloutAll contains the settings of a rollout to all clusters at once.
type RolloutAll struct {
	RolloutConfig `json:",inline"`
}

// RolloutProgressive contains the settings of a rollout to a limited number of clusters at a time.
type RolloutProgressive struct {
	RolloutConfig `json:",inline"`

	MandatoryDecisionGroups `json:",inline"`

	// maxConcurrency is the number or percentage of clusters to change at a time.
	// +optional
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`
}

// RolloutProgressivePerGroup contains the settings of a rollout by decision groups.
type RolloutProgressivePerGroup struct {
	RolloutConfig `json:",inline"`

	MandatoryDecisionGroups `json:",inline"`
}

// ClusterManagementAddOnStatus reports the progress of the installation of an add-on.
type ClusterManagementAddOnStatus struct {
	// defaultconfigReferences lists the default configurations in use.
	// +optional
	// +listType=atomic
	DefaultConfigReferences []DefaultConfigReference `json:"defaultconfigReferences,omitempty"`

	// installProgressions reports the progress of the installation for each Placement.
	// +optional
	// +listType=atomic
	InstallProgressions []InstallProgression `json:"installProgressions,omitempty"`
}

// InstallProgression reports the progress of the installation on the clusters of a Placement.
type InstallProgression struct {
	// The Placement.
	PlacementRef `json:",inline"`

	// configReferences lists the configurations of the add-on on the clusters of this Placement.
	// +optional
	// +listType=atomic
	ConfigReferences []InstallConfigReference `json:"configReferences,omitempty"`

	// conditions report the state of the installation.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// DefaultConfigReference is a default configuration in use.
type DefaultConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// desiredConfig is the desired configuration of the add-on.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`
}

// InstallConfigReference is a configuration that is rolled out.
type InstallConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// desiredConfig is the desired configuration of the add-on.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`

	// lastKnownGoodConfig is the last configuration with a successful rollout.
	// +optional
	LastKnownGoodConfig *ConfigSpecHash `json:"lastKnownGoodConfig"`

	// lastAppliedConfig is the configuration that was applied to all clusters of the Placement.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig"`
}

// ConfigMeta is a kind of configuration of an add-on.
type ConfigMeta struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// defaultConfig is the configuration of clusters that have no other configuration of this kind.
	// +optional
	DefaultConfig *ConfigReferent `json:"defaultConfig,omitempty"`
}

// ConfigCoordinates refers to a configuration by its CustomResourceDefinition. Deprecated.
type ConfigCoordinates struct {
	// crdName is the name of the CustomResourceDefinition.
	// +optional
	CRDName string `json:"crdName,omitempty"`

	// crName is the name of the configuration.
	// +optional
	CRName string `json:"crName,omitempty"`

	// lastObservedGeneration is the metadata.generation of the configuration that was read.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`
}

// ConfigGroupResource is a kind of configuration, identified by its group and resource.
type ConfigGroupResource struct {
	// group is the API group of the configuration. It is empty for the core group.
	// +optional
	Group *string `json:"group,omitempty"`

	// resource is the plural name of the resource of the configuration, for example addondeploymentconfigs.
	Resource string `json:"resource"`
}

// ConfigReferent refers to a configuration by namespace and name.
type ConfigReferent struct {
	// namespace is the namespace of the configuration. It is empty for a cluster-scoped configuration.
	// +optional
	Namespace *string `json:"namespace,omitempty"`

	// name is the name of the configuration.
	Name string `json:"name"`
}

// ConfigSpecHash refers to a configuration with the hash of its spec.
type ConfigSpecHash struct {
	// The namespace and name of the configuration.
	ConfigReferent `json:",inline"`

	// specHash is the hash of the spec of the configuration.
	SpecHash string `json:"specHash"`
}

// AddOnConfig refers to a configuration of an add-on.
type AddOnConfig struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The configuration.
	ConfigReferent `json:",inline"`
}

// AddOnMeta describes an add-on for users.
type AddOnMeta struct {
	// displayName is the name of the add-on to show.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// description is the description of the add-on.
	// +optional
	Description string `json:"description,omitempty"`
}
