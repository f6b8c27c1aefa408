package v1alpha1

import "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"

// A subject of this group and kind stands for the ServiceAccount that a
// ManagedServiceAccount has on the managed cluster.
const (
	ManagedServiceAccountGroup = v1beta1.GroupName
	ManagedServiceAccountKind  = "ManagedServiceAccount"
)
