package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespace is a namespace of a managed cluster, as the agent of that
// cluster reports it. It lives in the hub namespace that is named after the
// cluster, has the name of the namespace and its labels, and exists as long as
// the namespace does and is not being deleted. A namespaceSelector of a
// ClusterPermission matches the labels of these objects.
type ClusterNamespace struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The labels are those of the namespace.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which namespace it is.
	// +optional
	Spec ClusterNamespaceSpec `json:"spec,omitempty"`
}

// ClusterNamespaceSpec identifies a namespace of a managed cluster.
type ClusterNamespaceSpec struct {
	// UID of the namespace on the managed cluster. It changes when the namespace is
	// deleted and made again.
	// +optional
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespaceList is a list of ClusterNamespaces.
type ClusterNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ClusterNamespaces.
	Items []ClusterNamespace `json:"items"`
}
