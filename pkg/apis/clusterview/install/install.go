// Package install registers the group clusterview.open-cluster-management.io in a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
)

// Install registers the types of the group. Since nothing is stored, the versioned types
// are also the internal types. It panics on a programming error.
func Install(scheme *runtime.Scheme) {
	internal := schema.GroupVersion{Group: clusterviewv1.GroupName, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(internal, clusterviewv1.Types()...)
	scheme.AddKnownTypes(internal, clusterviewv1alpha1.Types()...)
	utilruntime.Must(clusterviewv1.AddToScheme(scheme))
	utilruntime.Must(clusterviewv1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(clusterviewv1.SchemeGroupVersion, clusterviewv1alpha1.SchemeGroupVersion))
}
