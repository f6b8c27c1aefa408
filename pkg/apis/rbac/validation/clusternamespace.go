package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
)

// ValidateClusterNamespace validates a new ClusterNamespace. It has the name of the
// namespace on the managed cluster.
func ValidateClusterNamespace(namespace *rbac.ClusterNamespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&namespace.ObjectMeta, true, apivalidation.ValidateNamespaceName, field.NewPath("metadata"))
}

// ValidateClusterNamespaceUpdate accepts every update of a ClusterNamespace. The
// generic registry validates the metadata of updates.
func ValidateClusterNamespaceUpdate(_, _ *rbac.ClusterNamespace) field.ErrorList { return nil }
