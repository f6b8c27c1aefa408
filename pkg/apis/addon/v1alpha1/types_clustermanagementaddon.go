package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types of an install strategy.
const (
	// InstallStrategyManual is for add-ons whose ManagedClusterAddOns somebody else creates.
	InstallStrategyManual = "Manual"
	// InstallStrategyPlacements is for add-ons that are installed on the clusters of Placements.
	InstallStrategyPlacements = "Placements"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOn announces an add-on that can be installed on managed clusters, where it is
// installed, and its default configurations. A ManagedClusterAddOn of the same name in the namespace
// of a cluster installs it there.
type ClusterManagementAddOn struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the add-on is, and where it is installed.
	// +optional
	Spec ClusterManagementAddOnSpec `json:"spec"`

	// How far the installation is.
	// +optional
	Status ClusterManagementAddOnStatus `json:"status,omitempty"`
}

// ClusterManagementAddOnSpec says what an add-on is, and where it is installed.
type ClusterManagementAddOnSpec struct {
	// The description of the add-on.
	// +optional
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty"`

	// Where the configuration is. Deprecated: use supportedConfigs.
	// +optional
	AddOnConfiguration ConfigCoordinates `json:"addOnConfiguration,omitempty"`

	// The kinds of configurations that the add-on takes.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigMeta `json:"supportedConfigs,omitempty"`

	// On which clusters the add-on is installed.
	// +optional
	InstallStrategy InstallStrategy `json:"installStrategy,omitempty"`
}

// InstallStrategy says on which clusters an add-on is installed.
type InstallStrategy struct {
	// With Manual the add-on is installed where a ManagedClusterAddOn is created; with Placements on
	// the clusters that the placements select. Defaults to Manual.
	// +optional
	// +default="Manual"
	Type string `json:"type,omitempty"`

	// The Placements that select the clusters. For a cluster that several select, the last one holds.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Placements []PlacementStrategy `json:"placements,omitempty"`
}

// PlacementRef names a Placement.
type PlacementRef struct {
	// The namespace of the Placement.
	Namespace string `json:"namespace"`

	// The name of the Placement.
	Name string `json:"name"`
}

// PlacementStrategy says how an add-on is installed on the clusters of a Placement.
type PlacementStrategy struct {
	// The Placement.
	PlacementRef `json:",inline"`

	// The configurations of the add-on on the clusters of this Placement.
	// +optional
	// +listType=atomic
	Configs []AddOnConfig `json:"configs,omitempty"`

	// How a change of a configuration is rolled out.
	// +optional
	RolloutStrategy RolloutStrategy `json:"rolloutStrategy,omitempty"`
}

// RolloutType is how a change is rolled out.
// +enum
type RolloutType string

const (
	// RolloutTypeAll changes all clusters at once.
	RolloutTypeAll RolloutType = "All"
	// RolloutTypeProgressive changes some clusters at a time.
	RolloutTypeProgressive RolloutType = "Progressive"
	// RolloutTypeProgressivePerGroup changes one decision group of a Placement after another.
	RolloutTypeProgressivePerGroup RolloutType = "ProgressivePerGroup"
)

// RolloutStrategy says how a change is rolled out.
type RolloutStrategy struct {
	// How the change is rolled out. Defaults to All.
	// +optional
	// +default="All"
	Type RolloutType `json:"type,omitempty"`

	// Only with the type All.
	// +optional
	All *RolloutAll `json:"all,omitempty"`

	// Only with the type Progressive.
	// +optional
	Progressive *RolloutProgressive `json:"progressive,omitempty"`

	// Only with the type ProgressivePerGroup.
	// +optional
	ProgressivePerGroup *RolloutProgressivePerGroup `json:"progressivePerGroup,omitempty"`
}

// RolloutConfig says when a rollout goes on, and when it has failed.
type RolloutConfig struct {
	// How long a cluster has to be healthy before the rollout goes on.
	// +optional
	MinSuccessTime metav1.Duration `json:"minSuccessTime,omitempty"`

	// After how long a cluster that is not healthy has failed, such as 10m; None for never.
	// +optional
	ProgressDeadline string `json:"progressDeadline,omitempty"`

	// How many clusters may fail before the rollout stops, as a number or a percentage.
	// +optional
	MaxFailures intstr.IntOrString `json:"maxFailures,omitempty"`
}

// MandatoryDecisionGroup names a decision group of a Placement, by its name or its index.
type MandatoryDecisionGroup struct {
	// The name of the group.
	// +optional
	GroupName string `json:"groupName,omitempty"`

	// The index of the group.
	// +optional
	GroupIndex int32 `json:"groupIndex,omitempty"`
}

// MandatoryDecisionGroups are groups that have to succeed before all others.
type MandatoryDecisionGroups struct {
	// Groups that have to succeed before all others, in this order.
	// +optional
	// +listType=atomic
	MandatoryDecisionGroups []MandatoryDecisionGroup `json:"mandatoryDecisionGroups,omitempty"`
}

// RolloutAll says how all clusters are changed at once.
type RolloutAll struct {
	RolloutConfig `json:",inline"`
}

// RolloutProgressive says how some clusters are changed at a time.
type RolloutProgressive struct {
	RolloutConfig `json:",inline"`

	MandatoryDecisionGroups `json:",inline"`

	// How many clusters are changed at a time, as a number or a percentage.
	// +optional
	MaxConcurrency intstr.IntOrString `json:"maxConcurrency,omitempty"`
}

// RolloutProgressivePerGroup says how one decision group is changed after another.
type RolloutProgressivePerGroup struct {
	RolloutConfig `json:",inline"`

	MandatoryDecisionGroups `json:",inline"`
}

// ClusterManagementAddOnStatus says how far the installation of an add-on is.
type ClusterManagementAddOnStatus struct {
	// The default configurations in use.
	// +optional
	// +listType=atomic
	DefaultConfigReferences []DefaultConfigReference `json:"defaultconfigReferences,omitempty"`

	// How far the installation is, for each Placement.
	// +optional
	// +listType=atomic
	InstallProgressions []InstallProgression `json:"installProgressions,omitempty"`
}

// InstallProgression says how far the installation on the clusters of a Placement is.
type InstallProgression struct {
	// The Placement.
	PlacementRef `json:",inline"`

	// The configurations of the add-on on the clusters of this Placement.
	// +optional
	// +listType=atomic
	ConfigReferences []InstallConfigReference `json:"configReferences,omitempty"`

	// The state of the installation.
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

	// The configuration that the add-on is to have.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`
}

// InstallConfigReference is a configuration that is rolled out.
type InstallConfigReference struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The configuration that the add-on is to have.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig"`

	// The last configuration with which the rollout succeeded.
	// +optional
	LastKnownGoodConfig *ConfigSpecHash `json:"lastKnownGoodConfig"`

	// The configuration that was applied to all clusters of the Placement.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOnList is a list of ClusterManagementAddOns.
type ClusterManagementAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ClusterManagementAddOns.
	Items []ClusterManagementAddOn `json:"items"`
}

// ConfigMeta is a kind of configuration that an add-on takes.
type ConfigMeta struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The configuration of clusters for which no other one is named.
	// +optional
	DefaultConfig *ConfigReferent `json:"defaultConfig,omitempty"`
}

// ConfigCoordinates names a configuration by its CustomResourceDefinition. It is deprecated.
type ConfigCoordinates struct {
	// The name of the CustomResourceDefinition.
	// +optional
	CRDName string `json:"crdName,omitempty"`

	// The name of the configuration.
	// +optional
	CRName string `json:"crName,omitempty"`

	// The metadata.generation of the configuration that was read.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`
}

// ConfigGroupResource is a kind of configuration, by its group and resource.
type ConfigGroupResource struct {
	// The API group of the configuration; empty for the core group.
	// +optional
	// +default=""
	Group string `json:"group"`

	// The resource of the configuration, such as addondeploymentconfigs.
	Resource string `json:"resource"`
}

// ConfigReferent is one configuration, by its namespace and name.
type ConfigReferent struct {
	// The namespace of the configuration. Empty if it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// The name of the configuration.
	Name string `json:"name"`
}

// ConfigSpecHash is a configuration in the state in which it was read.
type ConfigSpecHash struct {
	// The namespace and name of the configuration.
	ConfigReferent `json:",inline"`

	// The hash of the configuration's spec.
	SpecHash string `json:"specHash"`
}

// AddOnConfig names a configuration of an add-on.
type AddOnConfig struct {
	// The kind of the configuration.
	ConfigGroupResource `json:",inline"`

	// The configuration.
	ConfigReferent `json:",inline"`
}

// AddOnMeta describes an add-on for people.
type AddOnMeta struct {
	// The name of the add-on to show.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// What the add-on does.
	// +optional
	Description string `json:"description,omitempty"`
}
