package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
)

// NoDefaultConfigName is the name in defaultConfigs of a configuration kind without a default, which v1alpha1
// expresses by a missing defaultConfig. No configuration can have this name.
const NoDefaultConfigName = "__reserved_no_default__"

// Types of an install strategy.
const (
	// InstallStrategyManual is the strategy of add-ons whose ManagedClusterAddOns are created by users or
	// controllers.
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

	// defaultConfigs lists the kinds of configurations of the add-on with their defaults.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	DefaultConfigs []AddOnConfig `json:"defaultConfigs,omitzero"`

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
type PlacementRef v1alpha1.PlacementRef

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

// RolloutStrategy specifies how a change is rolled out.
type RolloutStrategy struct {
	// type is All, Progressive or ProgressivePerGroup. Defaults to All.
	// +optional
	// +default="All"
	Type v1alpha1.RolloutType `json:"type,omitempty"`

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
type RolloutConfig v1alpha1.RolloutConfig

// MandatoryDecisionGroup identifies a decision group of a Placement by name or index.
type MandatoryDecisionGroup v1alpha1.MandatoryDecisionGroup

// MandatoryDecisionGroups lists groups that must succeed before all others.
type MandatoryDecisionGroups struct {
	// mandatoryDecisionGroups lists groups that must succeed before all others, in this order.
	// +optional
	// +listType=atomic
	MandatoryDecisionGroups []MandatoryDecisionGroup `json:"mandatoryDecisionGroups,omitzero"`
}

// RolloutAll contains the settings of a rollout to all clusters at once.
type RolloutAll v1alpha1.RolloutAll

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
	// defaultConfigReferences lists the default configurations in use.
	// +optional
	// +listType=atomic
	DefaultConfigReferences []DefaultConfigReference `json:"defaultConfigReferences,omitempty"`

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

	// lastKnownGoodConfig is the last configuration whose rollout succeeded.
	// +optional
	LastKnownGoodConfig *ConfigSpecHash `json:"lastKnownGoodConfig"`

	// lastAppliedConfig is the configuration that was applied to all clusters of the Placement.
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

	// items is the list of ClusterManagementAddOns.
	Items []ClusterManagementAddOn `json:"items"`
}

// ConfigGroupResource is a kind of configuration, identified by its group and resource.
type ConfigGroupResource v1alpha1.ConfigGroupResource

// ConfigReferent refers to a configuration by namespace and name.
type ConfigReferent v1alpha1.ConfigReferent

// ConfigSpecHash refers to a configuration with the hash of its spec.
type ConfigSpecHash v1alpha1.ConfigSpecHash

// AddOnConfig refers to a configuration of an add-on.
type AddOnConfig v1alpha1.AddOnConfig

// AddOnMeta describes an add-on for users.
type AddOnMeta v1alpha1.AddOnMeta
