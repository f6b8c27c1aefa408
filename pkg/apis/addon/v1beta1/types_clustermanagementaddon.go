package v1beta1

import "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"

// NoDefaultConfigName is the name in defaultConfigs of a configuration kind without a default, which v1alpha1
// expresses by a missing defaultConfig. No configuration can have this name.
const NoDefaultConfigName = "__reserved_no_default__"

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

// RolloutAll contains the settings of a rollout to all clusters at once.
type RolloutAll v1alpha1.RolloutAll

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

// ConfigSpecHash refers to a configuration with the hash of its spec.
type ConfigSpecHash v1alpha1.ConfigSpecHash

// AddOnConfig refers to a configuration of an add-on.
type AddOnConfig v1alpha1.AddOnConfig
