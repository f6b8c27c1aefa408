package rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespace represents a namespace of a managed cluster.
type ClusterNamespace struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec ClusterNamespaceSpec
}

// ClusterNamespaceSpec identifies a namespace of a managed cluster.
type ClusterNamespaceSpec struct {
	NamespaceUID types.UID
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespaceList is a list of ClusterNamespaces.
type ClusterNamespaceList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ClusterNamespace
}
