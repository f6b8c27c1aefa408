// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.addon.v1beta1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=open-cluster-management.io/hub-apiserver/pkg/apis/addon
// +k8s:conversion-gen=open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1
// +k8s:defaulter-gen=TypeMeta
// +same:v1alpha1=AddOnDeploymentConfig,AddOnDeploymentConfigSpec,CustomizedVariable,NodePlacement,Toleration
// +same:v1alpha1=ImageMirror,ProxyConfig,ContainerResourceRequirements,ResourceRequirements,ResourceClaim
// +same:v1alpha1=ClusterManagementAddOn,InstallStrategy,PlacementRef,PlacementStrategy,RolloutConfig
// +same:v1alpha1=MandatoryDecisionGroup,MandatoryDecisionGroups,RolloutProgressive,RolloutProgressivePerGroup
// +same:v1alpha1=InstallProgression,DefaultConfigReference,InstallConfigReference,ConfigGroupResource,ConfigReferent
// +same:v1alpha1=AddOnMeta
// +same:v1alpha1=ManagedClusterAddOn,ObjectReference
// +groupName=addon.open-cluster-management.io

// Package v1beta1 is the preferred version of the group addon.open-cluster-management.io, the add-ons of managed
// clusters.
package v1beta1
