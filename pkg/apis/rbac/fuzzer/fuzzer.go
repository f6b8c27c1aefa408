// Package fuzzer fills the types of the group rbac.open-cluster-management.io with random valid values.
package fuzzer

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
)

// Funcs returns the functions for types whose random values do not survive a round trip.
var Funcs = func(serializer.CodecFactory) []any {
	return []any{
		func(spec *rbac.ClusterPermissionSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			// JSON does not distinguish a nil pointer from a pointer to a nil list.
			dropEmpty(&spec.ClusterRoleBindings)
			dropEmpty(&spec.Roles)
			dropEmpty(&spec.RoleBindings)
			dropEmpty(&spec.RoleRefs)
		},
	}
}

func dropEmpty[T any](list **[]T) {
	if *list != nil && len(**list) == 0 {
		*list = nil
	}
}
