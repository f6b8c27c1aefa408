package access

import (
	"slices"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// What Grants returns of one cluster is bounded, so that no cluster makes questions about others expensive. Of a cluster
// that exceeds a bound, it returns nothing.
const (
	// maxGrants bounds the pairs of rules and a namespace.
	maxGrants = 5000
	// maxGrantBytes bounds the text of the rules.
	maxGrantBytes = 1 << 20
)

// Grants calls yield with the rules that allow a verb to any of the subjects on clusters that are known: with the
// namespace in which the rules apply, or "" for all namespaces, and the names of the clusters. It returns those of the
// given clusters that are not known.
func (x *Index) Grants(subjects []rbac.Subject, verb string, clusters []string, yield func(namespace string, rules []rbacv1.PolicyRule, clusters []string)) (unknown []string) {
	w := unique.Make(verb)
	granted, unknown := x.grants(subjects, w, clusters)
	for _, g := range granted {
		var rules []rbacv1.PolicyRule
		for i := range g.rules.rules {
			if verbs, _, _, _, _ := g.rules.lists(i); containsOrAny(verbs, w) {
				rules = append(rules, g.rules.policyRule(i))
			}
		}
		yield(g.namespace.Value(), rules, g.names)
	}
	return unknown
}

// grant is a rule set that applies in a namespace of several clusters.
type grant struct {
	rules     *ruleSet
	namespace word
	clusters  set
	names     []string
}

// grantedRules is a rule set that applies anywhere on several clusters.
type grantedRules struct {
	// allowed is true if a rule contains the verb.
	allowed  bool
	clusters set
}

func (x *Index) grants(subjects []rbac.Subject, verb word, clusters []string) (list []*grant, unknown []string) {
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
	type key struct {
		rules     *ruleSet
		namespace word
	}
	found, rules := map[key]*grant{}, map[*ruleSet]*grantedRules{}
	counts, bytes := make([]int, len(x.slots)), make([]int, len(x.slots))
	add := func(b *binding, r *role, id uint32) {
		of := rules[r.rules]
		if of == nil {
			of = &grantedRules{allowed: r.rules.hasVerb(verb)}
			rules[r.rules] = of
		}
		if !of.allowed {
			return
		}
		if of.clusters.add(id) {
			bytes[id] += int(r.size)
		}
		k := key{r.rules, b.namespace}
		g := found[k]
		if g == nil {
			g = &grant{rules: r.rules, namespace: b.namespace}
			found[k] = g
			list = append(list, g)
		}
		if g.clusters.add(id) {
			counts[id]++
		}
	}
	seen := map[*binding]bool{}
	for _, s := range subjects {
		of := x.records.subjects[subjectKey{unique.Make(s.Name), s.Group}]
		if of == nil {
			continue
		}
		for _, entry := range of.bindings {
			if b := entry.binding; b.node != nil && !seen[b] {
				seen[b] = true
				x.eachRole(b, &known, func(r *role, id uint32) { add(b, r, id) })
			}
		}
	}
	for _, g := range list {
		g.clusters.each(func(id uint32) bool {
			if counts[id] <= maxGrants && bytes[id] <= maxGrantBytes {
				g.names = append(g.names, x.slots[id].name)
			}
			return true
		})
	}
	return slices.DeleteFunc(list, func(g *grant) bool { return len(g.names) == 0 }), unknown
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

func (r *ruleSet) hasVerb(verb word) bool {
	for i := range r.rules {
		if verbs, _, _, _, _ := r.lists(i); containsOrAny(verbs, verb) {
			return true
		}
	}
	return false
}

// Follow makes the Index call changed after each change of what Grants returns, with the cluster and the subjects for
// which it may have changed. state is true if the cluster has become known or unknown. It must be called before the
// first change. changed may be called concurrently.
func (x *Index) Follow(changed func(cluster string, state bool, concerned []rbac.Subject)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changed = changed
}

// changes collects the subjects that a change of one cluster concerns. A nil pointer collects nothing.
type changes struct {
	index    *Index
	cluster  *cluster
	nodes    map[*node]bool
	subjects map[subjectKey]bool
}

// changesOf returns nil if nobody follows the changes.
func (x *Index) changesOf(c *cluster) *changes {
	if x.changed == nil && x.interests.Empty() {
		return nil
	}
	return &changes{index: x, cluster: c, nodes: map[*node]bool{}, subjects: map[subjectKey]bool{}}
}

func (d *changes) binding(b *binding) {
	if d == nil {
		return
	}
	for _, ref := range b.subjects {
		d.subjects[ref.subject.subjectKey] = true
	}
}

func (d *changes) role(r *role) {
	if d != nil {
		d.nodes[r.node] = true
	}
}

// addBound adds the subjects that are bound to changed roles.
func (d *changes) addBound() {
	if d == nil || len(d.nodes) == 0 {
		return
	}
	for _, b := range d.cluster.bindings {
		if d.nodes[b.node] {
			d.binding(b)
		}
	}
}

// addAll adds all subjects of the cluster.
func (d *changes) addAll() {
	if d == nil {
		return
	}
	for _, b := range d.cluster.bindings {
		d.binding(b)
	}
}

// publish notifies the follower and the interests. The caller must not hold the lock of the Index.
func (d *changes) publish(state bool) {
	if d == nil || !state && len(d.subjects) == 0 {
		return
	}
	concerned := make([]rbac.Subject, 0, len(d.subjects))
	for key := range d.subjects {
		concerned = append(concerned, key.subject())
	}
	d.index.interests.Touch(concerned)
	if d.index.changed != nil {
		d.index.changed(d.cluster.name, state, concerned)
	}
}
