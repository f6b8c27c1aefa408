package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the API group.
const GroupName = "search.open-cluster-management.io"

// SchemeGroupVersion is the group and version of this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	localSchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this version.
	AddToScheme = localSchemeBuilder.AddToScheme
)

// Resource returns the GroupResource of a resource of this group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// Types returns the objects of this version.
func Types() []runtime.Object {
	return []runtime.Object{
		&Search{}, &SearchCompletion{}, &SearchSchema{},
		&FleetResource{}, &FleetResourceList{},
		&Inventory{}, &InventoryList{},
		&Console{},
	}
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, Types()...)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	// Field selectors of FleetResources may use any property.
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("FleetResource"), func(label, value string) (string, string, error) {
		return label, value, nil
	})
}
