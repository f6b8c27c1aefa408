package clusterpermission

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// HubRoles contains the rules of roles of the hub.
type HubRoles map[ObjectKey][]rbacv1.PolicyRule

// HubRoleKeys returns the roles of the hub that the delivered or the current spec of a
// ClusterPermission refers to, sorted and without duplicates.
func HubRoleKeys(cp *v1alpha1.ClusterPermission) []ObjectKey {
	var keys []ObjectKey
	for _, spec := range specs(cp) {
		for _, ref := range ptr.Deref(spec.RoleRefs, nil) {
			keys = append(keys, ObjectKey{ref.Kind, ref.Namespace, ref.Name})
		}
	}
	slices.SortFunc(keys, func(a, b ObjectKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(keys)
}

// hubRole adds a role of the hub with its own name.
func (r *renderer) hubRole(ref v1alpha1.HubRoleRef, fldPath *field.Path) {
	key := ObjectKey{ref.Kind, ref.Namespace, ref.Name}
	rules, found := r.in.HubRoles[key]
	if !found {
		r.leaveOut(fldPath, key.String()+" does not exist on the hub")
		r.result.MissingRoleRefs = append(r.result.MissingRoleRefs, key.String())
		return
	}
	r.add(key, nil, newRules(rules))
}
