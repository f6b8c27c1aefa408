package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func init() {
	localSchemeBuilder.Register(func(scheme *runtime.Scheme) error {
		// Field selectors may use any property.
		return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("FleetResource"), func(label, value string) (string, string, error) {
			return label, value, nil
		})
	})
}

// +genclient
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FleetResource is a resource of the hub or of a managed cluster, as its cluster reports it. It is read-only.
// Its namespace is the name of the cluster and its name is the UID of the resource. It has the labels and the
// creation timestamp of the resource. Field selectors may use any property, for example kind, name, namespace
// or status. Lists and watches contain the resources that the caller may list on the hub or view on the managed
// cluster.
type FleetResource struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// resource identifies the resource.
	Resource ResourceIdentity `json:"resource"`

	// properties contains the properties of the resource, for example status. Other properties depend on the
	// kind.
	// +optional
	Properties runtime.RawExtension `json:"properties,omitempty"`
}

// ResourceIdentity identifies a resource of a cluster.
type ResourceIdentity struct {
	// apiGroup is the API group of the resource. It is empty for the core group.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`

	// version is the API version in which the resource was read.
	// +optional
	Version string `json:"version,omitempty"`

	// kind is the kind of the resource.
	Kind string `json:"kind"`

	// resource is the plural name of the kind.
	// +optional
	Resource string `json:"resource,omitempty"`

	// namespace is the namespace of the resource on its cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the resource on its cluster.
	Name string `json:"name"`
}
