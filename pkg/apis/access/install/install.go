// Package install registers the group access.open-cluster-management.io in a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
)

// Install registers the types of the group. Since nothing is stored, the versioned types
// are also the internal types. It panics on a programming error.
func Install(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}, v1alpha1.Types()...)
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}
