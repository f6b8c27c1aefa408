package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// ProjectClusterLabel and ProjectNameLabel are the labels of a Project with its cluster and its namespace.
	ProjectClusterLabel = "cluster"
	ProjectNameLabel    = "project"
	// AllProjects stands for all namespaces of a cluster.
	AllProjects = "all_projects"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=list
// +resourceName=kubevirtprojects
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Project is a namespace of a cluster in which the caller has a role of KubeVirt. Its labels contain the names of the
// cluster and the namespace. It is read-only.
type Project struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
}
