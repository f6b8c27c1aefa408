package v1alpha1

import "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"

// A subject of this group and kind refers to the ServiceAccount of a
// ManagedServiceAccount on the managed cluster.
const (
	ManagedServiceAccountGroup = v1beta1.GroupName
	ManagedServiceAccountKind  = "ManagedServiceAccount"
)
