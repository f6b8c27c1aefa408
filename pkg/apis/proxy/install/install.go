// Package install registers the group proxy.open-cluster-management.io in a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1beta1"
)

// Install registers the types of the group. The group shares its internal types with
// authentication.open-cluster-management.io, which must be installed first. It panics on
// a programming error, such as two types of one kind.
func Install(scheme *runtime.Scheme) {
	internal := schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(internal, &authentication.ManagedServiceAccount{}, &authentication.ManagedServiceAccountList{})
	scheme.AddKnownTypes(internal, &v1beta1.ClusterStatus{}, &v1beta1.ClusterStatusProxyOptions{})
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion))
}
