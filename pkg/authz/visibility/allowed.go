package visibility

import (
	"slices"
	"sync/atomic"
)

// allowed is what a Scope holds. It does not change, and may be used concurrently.
type allowed struct {
	id uint64
	// hub decides about the hub's own resources.
	hub decider
	// views are the namespaces in which the caller may create managedclusterviews;
	// anyView is set if that is everywhere.
	anyView bool
	views   map[string]struct{}
	// clusters are what ClusterPermissions let the caller list, by managed cluster.
	clusters map[string]*grants
	// fingerprint is equal only for what allows the same.
	fingerprint fingerprint
}

// decider decides about the resources of one cluster.
type decider interface {
	// whole tells whether everything may be listed.
	whole() bool
	decide(group, resource, namespace string) Decision
}

var lastID atomic.Uint64

// numbered gives what was compiled an ID.
func (a *allowed) numbered() *allowed {
	a.id = lastID.Add(1)
	return a
}

func (a *allowed) wholeHub() bool    { return a.hub.whole() }
func (a *allowed) allClusters() bool { return a.anyView }

func (a *allowed) cluster(name string) bool {
	if a.anyView {
		return true
	}
	_, found := a.views[name]
	return found
}

func (a *allowed) decide(class Class) Decision {
	if class.Hub {
		return a.hub.decide(class.Group, class.Resource, class.Namespace)
	}
	if !class.Secret() && a.cluster(class.Cluster) {
		return Decision{All: true}
	}
	if granted := a.clusters[class.Cluster]; granted != nil {
		return granted.decide(class.Group, class.Resource, class.Namespace)
	}
	return Decision{}
}

// grants are what RBAC lets an identity list in one cluster.
type grants struct {
	// everything is set for those whom no rule restricts.
	everything bool
	wide       *ruleSet
	namespaces map[string][]*ruleSet
}

func (g *grants) whole() bool { return g.everything || g.wide.whole() }

func (g *grants) decide(group, resource, namespace string) Decision {
	if g.everything {
		return Decision{All: true}
	}
	decision := g.wide.decide(group, resource)
	if decision.All || namespace == "" {
		return decision
	}
	for _, rules := range g.namespaces[namespace] {
		there := rules.decide(group, resource)
		if there.All {
			return there
		}
		decision.Names = union(decision.Names, there.Names)
	}
	return decision
}

// union of sorted names; it copies only where both have some.
func union(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
