package access

import (
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
