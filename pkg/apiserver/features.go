package apiserver

import "k8s.io/component-base/featuregate"

const (
	// SearchByClusterPermission lets callers find on managed clusters what ClusterPermissions
	// let them list there, too. It takes an identity of the hub and one of a managed cluster for the same.
	SearchByClusterPermission featuregate.Feature = "SearchByClusterPermission"
	// ManagedClusterAutoApproval accepts clusters by rules rather than by hand.
	ManagedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
)

// FeatureGates are the server's own.
var FeatureGates = map[featuregate.Feature]featuregate.FeatureSpec{
	SearchByClusterPermission:  {Default: false, PreRelease: featuregate.Alpha},
	ManagedClusterAutoApproval: {Default: false, PreRelease: featuregate.Alpha},
}
