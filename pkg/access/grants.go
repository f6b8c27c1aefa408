package access

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Grants calls yield with the rules that bindings grant to any of the subjects on clusters that are known: with the
// namespace in which the rules apply, or "" for all namespaces, and the names of the clusters. It returns those of the
// given clusters that are not known.
func (x *Index) Grants(subjects []rbac.Subject, clusters []string, yield func(namespace string, rules *rbac.RuleSet, clusters []string)) (unknown []string) {
	granted, unknown := x.grants(subjects, clusters)
	for _, g := range granted {
		yield(g.namespace.Value(), &g.rules.RuleSet, g.names)
	}
	return unknown
}

// grantKey is a rule set that applies in a namespace.
type grantKey struct {
	rules     *ruleSet
	namespace word
}

// grant is a grantKey on several clusters.
type grant struct {
	grantKey
	clusters set
	names    []string
}

func (x *Index) grants(subjects []rbac.Subject, clusters []string) (list []*grant, unknown []string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	known := newBitmap(len(x.slots))
	for _, c := range x.slots {
		if c != nil && c.state.Known {
			known.add(c.id)
		}
	}
	for _, name := range clusters {
		if c := x.clusters[name]; c == nil || !c.state.Known {
			unknown = append(unknown, name)
		}
	}
	found := map[grantKey]*grant{}
	for _, m := range x.memberships(subjects, func(b *binding) bool { return b.node != nil }) {
		x.eachRole(m.binding, &known, func(r *role, id uint32) {
			k := grantKey{r.rules, m.binding.namespace}
			g := found[k]
			if g == nil {
				g = &grant{grantKey: k}
				found[k] = g
				list = append(list, g)
			}
			if g.clusters.add(id) {
				g.names = append(g.names, x.slots[id].name)
			}
		})
	}
	return list, unknown
}

// eachRole calls yield with the role of a binding on each of the clusters.
func (x *Index) eachRole(b *binding, among *set, yield func(r *role, cluster uint32)) {
	if int(b.clusters.size) < len(b.node.roles) {
		b.clusters.each(func(id uint32) bool {
			if r := x.slots[id].roleOf(b.node); r != nil && among.has(id) {
				yield(r, id)
			}
			return true
		})
		return
	}
	for _, r := range b.node.roles {
		eachCommon(&b.clusters, &r.clusters, among, func(id uint32) bool { yield(r, id); return true })
	}
}

// Place is a cluster on which a role is bound to a subject.
type Place struct {
	Cluster string
	// Namespaces are the namespaces in which the role is bound, sorted. They are nil if it is bound in the whole cluster.
	Namespaces []string
}

// Places returns where roles are bound to a subject, by the name of the role and in the order of the clusters. A role
// that does not exist on a cluster, and a cluster that is not known, have no place. Of each role and cluster, at most
// limit namespaces are returned.
func (x *Index) Places(s Subject, clusters []string, wanted func(role rbac.Key) bool, limit int) map[string][]Place {
	x.mu.RLock()
	defer x.mu.RUnlock()
	asked, at := x.ask(clusters)
	places := map[string][]Place{}
	for _, m := range x.memberships(s.Subjects(), func(b *binding) bool { return b.node != nil && wanted(b.node.key()) }) {
		name, namespace := m.binding.node.name.Value(), m.binding.namespace.Value()
		found := places[name]
		if found == nil {
			found = make([]Place, len(clusters))
			places[name] = found
		}
		m.binding.clusters.each(func(id uint32) bool {
			if !asked.has(id) || x.slots[id].roleOf(m.binding.node) == nil {
				return true
			}
			// ClusterRoleBindings come first, and bindings of the same namespace follow each other.
			switch place := &found[at[id]]; {
			case namespace == "":
				place.Cluster = clusters[at[id]]
			case place.Cluster != "" && place.Namespaces == nil, len(place.Namespaces) == limit:
			case len(place.Namespaces) > 0 && place.Namespaces[len(place.Namespaces)-1] == namespace:
			default:
				place.Cluster, place.Namespaces = clusters[at[id]], append(place.Namespaces, namespace)
			}
			return true
		})
	}
	for name, found := range places {
		if found = slices.DeleteFunc(found, func(p Place) bool { return p.Cluster == "" }); len(found) == 0 {
			delete(places, name)
		} else {
			places[name] = found
		}
	}
	return places
}

// Namespaces returns the namespaces of a cluster in which RBAC allows a subject a request, or reports that it allows the
// request everywhere. It ignores the namespace of the Attributes. A cluster that is not known allows nothing.
func (x *Index) Namespaces(s Subject, a Attributes, cluster string) (namespaces map[string]struct{}, everywhere bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.clusters[cluster]
	switch {
	case c == nil || !c.state.Known:
		return nil, false
	case slices.Contains(s.Groups, user.SystemPrivilegedGroup):
		return nil, true
	}
	asked, _ := x.ask([]string{cluster})
	q := x.newEvaluation(a, asked)
	namespaces = map[string]struct{}{}
	for _, m := range x.memberships(s.Subjects(), func(b *binding) bool { return b.clusters.has(c.id) && q.grants(b, q.verdict(b.node)) }) {
		if m.binding.namespace == noString {
			return nil, true
		}
		namespaces[m.binding.namespace.Value()] = struct{}{}
	}
	return namespaces, false
}
