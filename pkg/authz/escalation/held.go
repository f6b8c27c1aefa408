package escalation

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// systemPrefix begins the names that each cluster gives to identities of its own:
// the hub's ServiceAccounts, nodes and masters are not those of a managed cluster.
const systemPrefix = "system:"

// held is what a caller holds on a managed cluster by delivered bindings.
type held struct {
	clusterWide *heldThere
	namespaces  map[string]*heldThere
}

type heldThere struct {
	rules []rbacv1.PolicyRule
	// roles are those whose rules are not known: the caller has whatever is in them.
	roles map[roleKey]bool
}

func newHeld(caller user.Info, d *delivered) *held {
	h := &held{clusterWide: &heldThere{roles: map[roleKey]bool{}}, namespaces: map[string]*heldThere{}}
	for _, b := range d.bindings {
		if !slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return is(caller, s) }) {
			continue
		}
		there := h.clusterWide
		if !b.where.clusterWide() {
			if h.namespaces[b.where.namespace] == nil {
				h.namespaces[b.where.namespace] = &heldThere{roles: map[roleKey]bool{}}
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

// is reports whether a caller of the hub is a subject on a managed cluster.
func is(caller user.Info, s rbacv1.Subject) bool {
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

// rules are what the caller holds wherever the scope may be.
func (h *held) rules(where scope) []rbacv1.PolicyRule {
	all := h.clusterWide.rules
	if there := h.namespaces[where.namespace]; there != nil {
		return append(all[:len(all):len(all)], there.rules...)
	}
	return all
}

// has reports whether the caller has that very role, known or not, wherever the
// scope may be.
func (h *held) has(role roleKey, where scope) bool {
	if h.clusterWide.roles[role] {
		return true
	}
	there := h.namespaces[where.namespace]
	return there != nil && there.roles[role]
}
