package escalation

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// systemPrefix is the prefix of identities that each cluster defines itself. A
// ServiceAccount, node or master of the hub is a different identity on a managed cluster.
const systemPrefix = "system:"

// held contains the permissions of a caller on a managed cluster through delivered bindings.
type held struct {
	clusterWide *heldRules
	namespaces  map[string]*heldRules
}

type heldRules struct {
	rules []rbacv1.PolicyRule
	// roles contains the bound roles with unknown rules. The caller holds all of their rules.
	roles map[rbac.Key]bool
}

func newHeld(caller user.Info, d *delivered) *held {
	h := &held{clusterWide: &heldRules{roles: map[rbac.Key]bool{}}, namespaces: map[string]*heldRules{}}
	for _, b := range d.bindings {
		if !slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return matches(caller, s) }) {
			continue
		}
		there := h.clusterWide
		if !b.where.clusterWide() {
			if h.namespaces[b.where.namespace] == nil {
				h.namespaces[b.where.namespace] = &heldRules{roles: map[rbac.Key]bool{}}
			}
			there = h.namespaces[b.where.namespace]
		}
		if role := d.role(b.role, nil); role.absent || role.opaque {
			there.roles[b.role] = true
		} else {
			there.rules = append(there.rules, within(b.where, role.rules)...)
		}
	}
	return h
}

// matches reports whether a caller of the hub is a subject on a managed cluster.
func matches(caller user.Info, s rbacv1.Subject) bool {
	if s.APIGroup != "" && s.APIGroup != rbacv1.GroupName {
		return false
	}
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name != "" && s.Name == caller.GetName() && !strings.HasPrefix(s.Name, systemPrefix)
	case rbacv1.GroupKind:
		if s.Name == user.AllAuthenticated && caller.GetName() == user.Anonymous {
			return false
		}
		return s.Name != "" && slices.Contains(caller.GetGroups(), s.Name) &&
			(s.Name == user.AllAuthenticated || !strings.HasPrefix(s.Name, systemPrefix))
	}
	return false
}

// rules returns the rules that the caller holds everywhere in the scope.
func (h *held) rules(where scope) []rbacv1.PolicyRule {
	all := h.clusterWide.rules
	if there := h.namespaces[where.namespace]; there != nil {
		return append(all[:len(all):len(all)], there.rules...)
	}
	return all
}

// has reports whether the caller is bound to that role, whose rules are unknown,
// everywhere in the scope.
func (h *held) has(role rbac.Key, where scope) bool {
	if h.clusterWide.roles[role] {
		return true
	}
	there := h.namespaces[where.namespace]
	return there != nil && there.roles[role]
}
