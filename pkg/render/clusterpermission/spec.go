package clusterpermission

import (
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// specs returns the delivered spec of a ClusterPermission, if any, and its current spec.
func specs(cp *v1alpha1.ClusterPermission) []*v1alpha1.ClusterPermissionSpec {
	switch delivered, _ := cp.Delivered(); delivered {
	case nil, &cp.Spec:
		return []*v1alpha1.ClusterPermissionSpec{&cp.Spec}
	default:
		return []*v1alpha1.ClusterPermissionSpec{delivered, &cp.Spec}
	}
}
