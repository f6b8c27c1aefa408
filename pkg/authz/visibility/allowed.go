package visibility

import (
	"slices"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// allowed is the content of a Scope. It is immutable.
type allowed struct {
	id uint64
	// hub decides about resources of the hub.
	hub decider
	// views are the namespaces in which the caller may create managedclusterviews.
	// anyView is set if the caller may create them everywhere.
	anyView bool
	views   map[string]struct{}
	// clusters are the permissions through ClusterPermissions, by managed cluster.
	clusters map[string]*grants
	// fingerprint is equal only for the same permissions.
	fingerprint rbac.Fingerprint
}

// decider decides about the resources of one cluster.
type decider interface {
	// whole reports whether the caller may list everything.
	whole() bool
	decide(group, resource, namespace string) Decision
	// gets decides about a resource of the group of ManagedClusters.
	gets(resource string) Decision
}

var lastID atomic.Uint64

func (a *allowed) numbered() *allowed {
	a.id = lastID.Add(1)
	return a
}

// grants are the permissions of an identity in one cluster by RBAC.
type grants struct {
	wide       *rbac.RuleSet
	namespaces map[string][]*rbac.RuleSet
}

// allGrants are the permissions of the privileged group.
var allGrants = &grants{wide: rbac.NewRuleSet(rbac.Everything)}

func (g *grants) whole() bool {
	return decide(g.wide, verbList, rbacv1.APIGroupAll, rbacv1.ResourceAll).All
}

func decide(rules *rbac.RuleSet, verb, group, resource string) Decision {
	all, names := rules.Names(verb, group, resource)
	return Decision{All: all, Names: names}
}

func (g *grants) decide(group, resource, namespace string) Decision {
	decision := decide(g.wide, verbList, group, resource)
	if decision.All || namespace == "" {
		return decision
	}
	for _, rules := range g.namespaces[namespace] {
		there := decide(rules, verbList, group, resource)
		if there.All {
			return there
		}
		decision.Names = union(decision.Names, there.Names)
	}
	return decision
}

func (g *grants) gets(resource string) Decision {
	return decide(g.wide, verbGet, clusterv1.GroupName, resource)
}

// union returns the union of two sorted lists. It copies only if neither is empty.
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
