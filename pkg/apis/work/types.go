package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWork is the internal form of a v1.ManifestWork.
type ManifestWork v1.ManifestWork

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkList is a list of ManifestWorks.
type ManifestWorkList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManifestWork
}
