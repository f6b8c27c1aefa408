// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.work.v1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=work.open-cluster-management.io

// Package v1 is the version of the group work.open-cluster-management.io: the objects that a hub delivers to
// its managed clusters, and the records of the agents about the applied objects.
package v1
