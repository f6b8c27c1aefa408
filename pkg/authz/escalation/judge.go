package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// judge compares grants with the permissions of the caller.
type judge struct {
	held      held
	delivered *delivered
	before    *granted
	work      *budget
	// others caches the roles that other ClusterPermissions deliver under the names of bound roles.
	others map[rbac.Key]contents
	// resources caches in which scopes the caller holds all resources; urls is set if the caller holds all URLs.
	resources map[scope]bool
	urls      bool
}

func newJudge(caller user.Info, manifests []workv1.Manifest, before *granted, work *budget) *judge {
	d := parse(manifests)
	j := &judge{held: newHeld(caller, d), delivered: d, before: before, work: work, others: map[rbac.Key]contents{}, resources: map[scope]bool{}}
	j.urls = len(work.uncovered(j.held[""].rules, rbac.Everything[1:])) == 0
	return j
}

// missing returns the part of a grant that the caller does not hold, or nil if none.
func (j *judge) missing(g *grant) *MissingGrant {
	refused := &MissingGrant{Path: g.path.String(), Verb: g.verb, Scope: g.where.String()}
	switch {
	case g.role == (rbac.Key{}):
	case g.verb == verbEscalate:
		refused.Role = "the hub's " + g.role.String()
	default:
		refused.Role = g.role.String()
	}

	rules := g.rules
	unknown := false
	if g.open || g.shadowed {
		others := j.deliveredByOthers(g.role)
		unknown = others.opaque || g.open && others.absent
		rules = append(rules[:len(rules):len(rules)], within(g.where, others.rules)...)
	}
	if (g.live || unknown && !j.held.has(g.role, g.where)) && !j.holdsEverything(g.where) {
		return refused
	}
	if missing := j.notHeld(g.where, rules); len(missing) > 0 {
		refused.Rules = rbac.Compact(missing)
		return refused
	}
	return nil
}

// deliveredByOthers returns the rules that other ClusterPermissions have delivered under the name of a role. If two
// deliver a role, it may have the rules of either, so binding it grants both.
func (j *judge) deliveredByOthers(key rbac.Key) contents {
	if known, found := j.others[key]; found {
		return known
	}
	var others contents
	if key.Kind != rbac.KindRole || key.Namespace != "" {
		others = j.delivered.role(key, j.before.roles.versions(key))
	} else {
		// The Roles in some namespaces do not determine the Roles in other namespaces.
		others.absent = true
		for _, namespace := range j.delivered.namespaces[key.Name] {
			role := rbac.Key{Kind: key.Kind, Namespace: namespace, Name: key.Name}
			there := j.delivered.role(role, j.before.roles.versions(role))
			others.opaque = others.opaque || there.opaque
			others.rules = append(others.rules, there.rules...)
		}
	}
	j.others[key] = others
	return others
}

func (j *judge) notHeld(where scope, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	// The budget must not limit a caller who holds all permissions.
	if j.holdsResources(where) {
		rules = onlyURLs(rules)
	}
	if j.urls {
		rules = withoutURLs(rules)
	}
	return j.work.uncovered(j.held.rules(where), rules)
}

// holdsEverything reports whether the caller holds all permissions that a role can grant in a scope.
func (j *judge) holdsEverything(where scope) bool {
	return j.holdsResources(where) && (j.urls || !where.clusterWide())
}

func (j *judge) holdsResources(where scope) bool {
	all, known := j.resources[where]
	if !known {
		all = len(j.work.uncovered(j.held.rules(where), rbac.Everything[:1])) == 0
		j.resources[where] = all
	}
	return all
}

// maxCopied bounds the rules that one check keeps for the bindings of a spec.
const maxCopied = 100_000

// budget bounds the cost of one check.
type budget struct {
	comparisons *rbac.Budget
	copies      int
}

func newBudget() *budget {
	return &budget{comparisons: rbac.NewBudget(), copies: maxCopied}
}

// keep deducts rules that are kept, and reports whether the budget allows them.
func (b *budget) keep(rules int) bool {
	if rules > b.copies {
		return false
	}
	b.copies -= rules
	return true
}

// uncovered returns the wanted rules that the held rules do not cover. If the comparison
// exceeds the budget, it returns all wanted rules that grant something.
func (b *budget) uncovered(held, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	missing, _ := b.comparisons.Uncovered(held, wanted)
	return missing
}
