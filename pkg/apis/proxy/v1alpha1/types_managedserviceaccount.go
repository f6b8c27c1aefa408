package v1alpha1

import "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedServiceAccount is a ServiceAccount on managed clusters with a token that is rotated and reported to
// the hub. It is the same object as in the group authentication.open-cluster-management.io.
type ManagedServiceAccount v1beta1.ManagedServiceAccount
