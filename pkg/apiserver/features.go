package apiserver

import "k8s.io/component-base/featuregate"

const (
	// SearchByClusterPermission includes the resources of managed clusters that the caller may list there: by the RBAC
	// of the cluster if it is known, and otherwise by ClusterPermissions. It assumes that users of the same name on the
	// hub and on managed clusters are the same.
	SearchByClusterPermission featuregate.Feature = "SearchByClusterPermission"
	// ManagedClusterAutoApproval accepts clusters automatically by rules.
	ManagedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
)

// FeatureGates are the feature gates of the server in addition to those of Kubernetes.
var FeatureGates = map[featuregate.Feature]featuregate.FeatureSpec{
	SearchByClusterPermission:  {Default: false, PreRelease: featuregate.Alpha},
	ManagedClusterAutoApproval: {Default: false, PreRelease: featuregate.Beta},
}
