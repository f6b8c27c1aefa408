package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOn registers an add-on that can be installed on managed clusters, with its default
// configurations and its install strategy.
type ClusterManagementAddOn struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   ClusterManagementAddOnSpec
	Status ClusterManagementAddOnStatus
}

// ClusterManagementAddOnSpec describes an add-on and its install strategy.
type ClusterManagementAddOnSpec struct {
	AddOnMeta          AddOnMeta
	AddOnConfiguration ConfigCoordinates
	SupportedConfigs   []ConfigMeta
	InstallStrategy    InstallStrategy
}

// InstallStrategy selects the clusters to install an add-on on.
type InstallStrategy struct {
	Type       string
	Placements []PlacementStrategy
}

// PlacementRef refers to a Placement.
type PlacementRef struct {
	Namespace string
	Name      string
}

// PlacementStrategy specifies how an add-on is installed on the clusters of a Placement.
type PlacementStrategy struct {
	PlacementRef
	Configs         []AddOnConfig
	RolloutStrategy RolloutStrategy
}

// RolloutType specifies how a change is rolled out.
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
	Type                RolloutType
	All                 *RolloutAll
	Progressive         *RolloutProgressive
	ProgressivePerGroup *RolloutProgressivePerGroup
}

// RolloutConfig specifies when a rollout continues and when it fails.
type RolloutConfig struct {
	MinSuccessTime   *string
	ProgressDeadline *string
	MaxFailures      *intstr.IntOrString
}

// MandatoryDecisionGroup identifies a decision group of a Placement by name or index.
type MandatoryDecisionGroup struct {
	GroupName  *string
	GroupIndex *int32
}

// MandatoryDecisionGroups lists groups that must succeed before all others.
type MandatoryDecisionGroups struct {
	MandatoryDecisionGroups []MandatoryDecisionGroup
}

// RolloutAll contains the settings of a rollout to all clusters at once.
type RolloutAll struct {
	RolloutConfig
}

// RolloutProgressive contains the settings of a rollout to a limited number of clusters at a time.
type RolloutProgressive struct {
	RolloutConfig
	MandatoryDecisionGroups
	MaxConcurrency *intstr.IntOrString
}

// RolloutProgressivePerGroup contains the settings of a rollout by decision groups.
type RolloutProgressivePerGroup struct {
	RolloutConfig
	MandatoryDecisionGroups
}

// ClusterManagementAddOnStatus reports the progress of the installation of an add-on.
type ClusterManagementAddOnStatus struct {
	DefaultConfigReferences []DefaultConfigReference
	InstallProgressions     []InstallProgression
}

// InstallProgression reports the progress of the installation on the clusters of a Placement.
type InstallProgression struct {
	PlacementRef
	ConfigReferences []InstallConfigReference
	Conditions       []metav1.Condition
}

// DefaultConfigReference is a default configuration in use.
type DefaultConfigReference struct {
	ConfigGroupResource
	DesiredConfig *ConfigSpecHash
}

// InstallConfigReference is a configuration that is rolled out.
type InstallConfigReference struct {
	ConfigGroupResource
	DesiredConfig       *ConfigSpecHash
	LastKnownGoodConfig *ConfigSpecHash
	LastAppliedConfig   *ConfigSpecHash
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOnList is a list of ClusterManagementAddOns.
type ClusterManagementAddOnList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ClusterManagementAddOn
}

// ConfigMeta is a kind of configuration of an add-on.
type ConfigMeta struct {
	ConfigGroupResource
	DefaultConfig *ConfigReferent
}

// ConfigCoordinates refers to a configuration by its CustomResourceDefinition.
type ConfigCoordinates struct {
	CRDName                string
	CRName                 string
	LastObservedGeneration int64
}

// ConfigGroupResource is a kind of configuration, identified by its group and resource.
type ConfigGroupResource struct {
	Group    *string
	Resource string
}

// ConfigReferent refers to a configuration by namespace and name.
type ConfigReferent struct {
	Namespace *string
	Name      string
}

// ConfigSpecHash refers to a configuration with the hash of its spec.
type ConfigSpecHash struct {
	ConfigReferent
	SpecHash string
}

// AddOnConfig refers to a configuration of an add-on.
type AddOnConfig struct {
	ConfigGroupResource
	ConfigReferent
}

// AddOnMeta describes an add-on for users.
type AddOnMeta struct {
	DisplayName string
	Description string
}
