package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// APILifecycleDeprecated is the release since which clients of this version get
// a Warning header: the first one of this server.
func (*ManagedServiceAccount) APILifecycleDeprecated() (major, minor int) { return 1, 37 }

// APILifecycleReplacement is what the warning recommends.
func (*ManagedServiceAccount) APILifecycleReplacement() schema.GroupVersionKind {
	return v1beta1.SchemeGroupVersion.WithKind("ManagedServiceAccount")
}

// APILifecycleDeprecated implements the same for lists.
func (*ManagedServiceAccountList) APILifecycleDeprecated() (major, minor int) { return 1, 37 }

// APILifecycleReplacement implements the same for lists.
func (*ManagedServiceAccountList) APILifecycleReplacement() schema.GroupVersionKind {
	return v1beta1.SchemeGroupVersion.WithKind("ManagedServiceAccountList")
}
