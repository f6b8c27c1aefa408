package clusterpermission

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// HubRoleKey identifies a Role or ClusterRole of the hub. The Namespace of a
// ClusterRole is empty.
type HubRoleKey struct {
	Kind, Namespace, Name string
}

// HubRoles contains the rules of roles of the hub.
type HubRoles map[HubRoleKey][]rbacv1.PolicyRule

// HubRoleKeys returns the roles of the hub that the delivered or the current spec of a
// ClusterPermission refers to, sorted and without duplicates.
func HubRoleKeys(cp *v1alpha1.ClusterPermission) []HubRoleKey {
	var keys []HubRoleKey
	for _, spec := range specs(cp) {
		for _, ref := range ptr.Deref(spec.RoleRefs, nil) {
			keys = append(keys, hubRoleKey(ref))
		}
	}
	slices.SortFunc(keys, func(a, b HubRoleKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(keys)
}

func hubRoleKey(ref v1alpha1.HubRoleRef) HubRoleKey {
	return HubRoleKey{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

func (k HubRoleKey) object() objectKey {
	return objectKey{kind: k.Kind, namespace: k.Namespace, name: k.Name}
}

// String returns, for example, "ClusterRole x" or "Role ns/x".
func (k HubRoleKey) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// hubRole adds a role of the hub with its own name.
func (r *renderer) hubRole(ref v1alpha1.HubRoleRef, fldPath *field.Path) {
	key := hubRoleKey(ref)
	rules, found := r.in.HubRoles[key]
	if !found {
		r.leaveOut(fldPath, key.String()+" does not exist on the hub")
		r.result.MissingRoleRefs = append(r.result.MissingRoleRefs, key.String())
		return
	}
	r.objects.add(key.object(), nil, newRules(rules))
}
