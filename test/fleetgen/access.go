package fleetgen

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedrbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// AccessOf returns the roles and bindings of a real cluster as its agent reports them.
func AccessOf(ctx context.Context, client typedrbacv1.RbacV1Interface) (*access.Update, error) {
	u := &access.Update{Full: true, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
	for _, list := range []func() (runtime.Object, error){
		func() (runtime.Object, error) { return client.ClusterRoles().List(ctx, metav1.ListOptions{}) },
		func() (runtime.Object, error) { return client.Roles("").List(ctx, metav1.ListOptions{}) },
		func() (runtime.Object, error) { return client.ClusterRoleBindings().List(ctx, metav1.ListOptions{}) },
		func() (runtime.Object, error) { return client.RoleBindings("").List(ctx, metav1.ListOptions{}) },
	} {
		found, err := list()
		if err != nil {
			return nil, err
		}
		if err := meta.EachListItem(found, func(object runtime.Object) error {
			if o, _ := rbac.FromTyped(object); o.IsRole() {
				u.Roles[o.Key] = o.Rules
			} else {
				u.Bindings[o.Key] = access.Binding{RoleRef: o.RoleRef, Subjects: o.Subjects}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// ownBindings is the share of the bindings of a cluster, in percent, that no other cluster has.
const ownBindings = 10

// Access returns the roles and bindings of a cluster of a fleet. The defaults and the
// bindings of add-ons are equal on all clusters; those of the teams are the cluster's own.
func Access(defaults *access.Update, index, bindings int) *access.Update {
	u := &access.Update{Full: true, Roles: maps.Clone(defaults.Roles), Bindings: maps.Clone(defaults.Bindings)}
	own := bindings * ownBindings / 100
	// Add-ons have equal names and rules everywhere.
	common := rand.New(rand.NewPCG(1, 1))
	for i := 0; len(u.Bindings) < bindings-own; i++ {
		namespace := fmt.Sprintf("addon-%d", i/8)
		name := fmt.Sprintf("addon-%d-part-%d", i/8, i%8)
		account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		if i%4 == 0 {
			role := rbac.Key{Kind: rbac.KindClusterRole, Name: name}
			u.Roles[role] = addonRules(common)
			u.Bindings[rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: name}] = access.Binding{RoleRef: refTo(role), Subjects: []rbacv1.Subject{account}}
			continue
		}
		role := rbac.Key{Kind: rbac.KindRole, Namespace: namespace, Name: name}
		u.Roles[role] = addonRules(common)
		u.Bindings[rbac.Key{Kind: rbac.KindRoleBinding, Namespace: namespace, Name: name}] = access.Binding{RoleRef: refTo(role), Subjects: []rbacv1.Subject{account}}
	}
	r := rand.New(rand.NewPCG(2, uint64(index)))
	for i := 0; len(u.Bindings) < bindings; i++ {
		namespace := fmt.Sprintf("team-%d", r.IntN(20))
		key := rbac.Key{Kind: rbac.KindRoleBinding, Namespace: namespace, Name: fmt.Sprintf("member-%d", i)}
		team := rbacv1.Subject{Kind: rbacv1.GroupKind, Name: fmt.Sprintf("%s-of-%s", namespace, ClusterName(index))}
		b := access.Binding{RoleRef: refTo(rbac.Key{Kind: rbac.KindClusterRole, Name: pick(r, []string{"admin", "edit", "view"})}), Subjects: []rbacv1.Subject{team}}
		switch i % 5 {
		case 0: // a person of the fleet
			b.Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: fmt.Sprintf("user-%d", r.IntN(5000))}}
		case 1: // a role of the team, with rules of its own
			role := rbac.Key{Kind: rbac.KindRole, Namespace: namespace, Name: "deployer"}
			u.Roles[role] = append(addonRules(r), rbacv1.PolicyRule{
				Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{team.Name},
			})
			b.RoleRef = refTo(role)
			b.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: fmt.Sprintf("deployer-%d", i)}}
		}
		u.Bindings[key] = b
	}
	return u
}

func refTo(role rbac.Key) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}
}

func addonRules(r *rand.Rand) []rbacv1.PolicyRule {
	kinds := []string{"pods", "services", "configmaps", "endpoints", "events", "secrets", "serviceaccounts", "namespaces", "nodes"}
	workloads := []string{"deployments", "daemonsets", "statefulsets", "replicasets"}
	read, write := []string{"get", "list", "watch"}, []string{"create", "update", "patch", "delete"}
	rules := []rbacv1.PolicyRule{{Verbs: read, APIGroups: []string{""}, Resources: []string{pick(r, kinds), pick(r, kinds), pick(r, kinds)}}}
	if r.IntN(2) == 0 {
		rules = append(rules, rbacv1.PolicyRule{Verbs: append(write, read...), APIGroups: []string{"apps"}, Resources: []string{pick(r, workloads)}})
	}
	return append(rules, rbacv1.PolicyRule{Verbs: write, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}})
}
