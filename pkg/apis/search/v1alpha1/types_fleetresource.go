package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FleetResource is a resource of the hub or of a managed cluster as its cluster
// reports it. It is read-only. Its namespace is the name of the cluster and its name the
// UID of the resource there; its labels and its creation time are those of the resource.
// A field selector may name any property, such as kind, name, namespace or status. A list or
// a watch shows what its caller may list on the hub or view on the cluster.
type FleetResource struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which resource it is.
	Resource ResourceIdentity `json:"resource"`

	// Properties of the resource, such as status, and more that depend on the kind.
	// +optional
	Properties runtime.RawExtension `json:"properties,omitempty"`
}

// ResourceIdentity tells which resource of a cluster it is.
type ResourceIdentity struct {
	// APIGroup of the resource; empty for the core group.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`

	// Version in which it was read.
	// +optional
	Version string `json:"version,omitempty"`

	// Kind of the resource.
	Kind string `json:"kind"`

	// Resource is the plural name of the kind.
	// +optional
	Resource string `json:"resource,omitempty"`

	// Namespace on its cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name on its cluster.
	Name string `json:"name"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FleetResourceList is a list of FleetResources.
type FleetResourceList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The FleetResources.
	Items []FleetResource `json:"items"`
}
