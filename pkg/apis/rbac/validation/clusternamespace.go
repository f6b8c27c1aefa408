package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
)

// ValidateClusterNamespace checks a ClusterNamespace that is about to be created.
// Its name is that of a namespace; what else it holds is for its agent to say.
func ValidateClusterNamespace(namespace *rbac.ClusterNamespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&namespace.ObjectMeta, true, apivalidation.ValidateNamespaceName, field.NewPath("metadata"))
}

// ValidateClusterNamespaceUpdate checks an update of a ClusterNamespace. The
// metadata of updates is left to the generic registry.
func ValidateClusterNamespaceUpdate(_, _ *rbac.ClusterNamespace) field.ErrorList { return nil }
