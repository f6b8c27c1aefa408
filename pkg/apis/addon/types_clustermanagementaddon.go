package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterManagementAddOn announces an add-on that can be installed on managed clusters, where it is
// installed, and its default configurations. A ManagedClusterAddOn of the same name in the namespace
// of a cluster installs it there.
type ClusterManagementAddOn struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   ClusterManagementAddOnSpec
	Status ClusterManagementAddOnStatus
}

// ClusterManagementAddOnSpec says what an add-on is, and where it is installed.
type ClusterManagementAddOnSpec struct {
	AddOnMeta          AddOnMeta
	AddOnConfiguration ConfigCoordinates
	SupportedConfigs   []ConfigMeta
	InstallStrategy    InstallStrategy
}

// InstallStrategy says on which clusters an add-on is installed.
type InstallStrategy struct {
	Type       string
	Placements []PlacementStrategy
}

// PlacementRef names a Placement.
type PlacementRef struct {
	Namespace string
	Name      string
}

// PlacementStrategy says how an add-on is installed on the clusters of a Placement.
type PlacementStrategy struct {
	PlacementRef
	Configs         []AddOnConfig
	RolloutStrategy RolloutStrategy
}

// RolloutType is how a change is rolled out.
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
	Type                RolloutType
	All                 *RolloutAll
	Progressive         *RolloutProgressive
	ProgressivePerGroup *RolloutProgressivePerGroup
}

// RolloutConfig says when a rollout goes on, and when it has failed.
type RolloutConfig struct {
	MinSuccessTime   metav1.Duration
	ProgressDeadline string
	MaxFailures      intstr.IntOrString
}

// MandatoryDecisionGroup names a decision group of a Placement, by its name or its index.
type MandatoryDecisionGroup struct {
	GroupName  string
	GroupIndex int32
}

// MandatoryDecisionGroups are groups that have to succeed before all others.
type MandatoryDecisionGroups struct {
	MandatoryDecisionGroups []MandatoryDecisionGroup
}

// RolloutAll says how all clusters are changed at once.
type RolloutAll struct {
	RolloutConfig
}

// RolloutProgressive says how some clusters are changed at a time.
type RolloutProgressive struct {
	RolloutConfig
	MandatoryDecisionGroups
	MaxConcurrency intstr.IntOrString
}

// RolloutProgressivePerGroup says how one decision group is changed after another.
type RolloutProgressivePerGroup struct {
	RolloutConfig
	MandatoryDecisionGroups
}

// ClusterManagementAddOnStatus says how far the installation of an add-on is.
type ClusterManagementAddOnStatus struct {
	DefaultConfigReferences []DefaultConfigReference
	InstallProgressions     []InstallProgression
}

// InstallProgression says how far the installation on the clusters of a Placement is.
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

// ConfigMeta is a kind of configuration that an add-on takes.
type ConfigMeta struct {
	ConfigGroupResource
	DefaultConfig *ConfigReferent
}

// ConfigCoordinates names a configuration by its CustomResourceDefinition. It is deprecated.
type ConfigCoordinates struct {
	CRDName                string
	CRName                 string
	LastObservedGeneration int64
}

// ConfigGroupResource is a kind of configuration, by its group and resource.
type ConfigGroupResource struct {
	Group    string
	Resource string
}

// ConfigReferent is one configuration, by its namespace and name.
type ConfigReferent struct {
	Namespace string
	Name      string
}

// ConfigSpecHash is a configuration in the state in which it was read.
type ConfigSpecHash struct {
	ConfigReferent
	SpecHash string
}

// AddOnConfig names a configuration of an add-on.
type AddOnConfig struct {
	ConfigGroupResource
	ConfigReferent
}

// AddOnMeta describes an add-on for people.
type AddOnMeta struct {
	DisplayName string
	Description string
}
