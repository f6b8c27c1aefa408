package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// APILifecycleDeprecated returns the first release in which clients of this version receive a Warning header.
func (*ManagedServiceAccount) APILifecycleDeprecated() (major, minor int) { return 1, 37 }

// APILifecycleReplacement returns the kind that the warning recommends.
func (*ManagedServiceAccount) APILifecycleReplacement() schema.GroupVersionKind {
	return v1beta1.SchemeGroupVersion.WithKind("ManagedServiceAccount")
}

// APILifecycleDeprecated returns the same release as for ManagedServiceAccount.
func (*ManagedServiceAccountList) APILifecycleDeprecated() (major, minor int) { return 1, 37 }

// APILifecycleReplacement returns the list kind that the warning recommends.
func (*ManagedServiceAccountList) APILifecycleReplacement() schema.GroupVersionKind {
	return v1beta1.SchemeGroupVersion.WithKind("ManagedServiceAccountList")
}
