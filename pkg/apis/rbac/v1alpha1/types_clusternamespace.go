package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespace represents a namespace of a managed cluster. The agent of the cluster maintains it in the
// namespace of the cluster on the hub. It has the name and the labels of the namespace, and exists until
// deletion of the namespace begins. The namespaceSelectors of ClusterPermissions match the labels of
// ClusterNamespaces.
type ClusterNamespace struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The labels are the labels of the namespace on the managed
	// cluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the namespace.
	// +optional
	Spec ClusterNamespaceSpec `json:"spec,omitempty"`
}

// ClusterNamespaceSpec identifies a namespace of a managed cluster.
type ClusterNamespaceSpec struct {
	// namespaceUID is the UID of the namespace on the managed cluster. It changes if the namespace is deleted
	// and created again.
	// +optional
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
}
