package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// judge compares grants with what the caller holds.
type judge struct {
	held      *held
	delivered *delivered
	before    *granted
	work      *budget
	// others remembers what others deliver under the names of bound roles.
	others map[roleKey]contents
	// free remembers the scopes in which the caller holds all resources; urls is
	// set if it holds all URLs.
	free map[scope]bool
	urls bool
}

func newJudge(caller user.Info, manifests []workv1.Manifest, before *granted, work *budget) *judge {
	d := parse(manifests)
	j := &judge{held: newHeld(caller, d), delivered: d, before: before, work: work, others: map[roleKey]contents{}, free: map[scope]bool{}}
	j.urls = len(work.uncovered(j.held.clusterWide.rules, everyURL)) == 0
	return j
}

// missing tells what of a grant the caller does not hold; nil if it holds all.
func (j *judge) missing(g *grant) *MissingGrant {
	refused := &MissingGrant{Path: g.path.String(), Verb: g.verb, Scope: g.where.String()}
	switch {
	case g.role == (roleKey{}):
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
		refused.Rules = compact(missing)
		return refused
	}
	return nil
}

// deliveredByOthers leaves out what the ClusterPermission itself has delivered.
// A role that two deliver is the one or the other, so that binding it grants both.
func (j *judge) deliveredByOthers(key roleKey) contents {
	if known, found := j.others[key]; found {
		return known
	}
	var others contents
	if key.kind != kindRole || key.namespace != "" {
		others = j.delivered.role(key, j.before.roles.versions(key))
	} else {
		// That it is in some namespaces tells nothing about the rest.
		others.absent = true
		for _, namespace := range j.delivered.namespaces[key.name] {
			one := roleKey{kind: key.kind, namespace: namespace, name: key.name}
			there := j.delivered.role(one, j.before.roles.versions(one))
			others.opaque = others.opaque || there.opaque
			others.rules = append(others.rules, there.rules...)
		}
	}
	j.others[key] = others
	return others
}

func (j *judge) notHeld(where scope, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	// Who holds everything is told so without comparing atoms.
	if j.holdsResources(where) {
		rules = onlyURLs(rules)
	}
	if j.urls {
		rules = withoutURLs(rules)
	}
	return j.work.uncovered(j.held.rules(where), rules)
}

// holdsEverything reports whether the caller holds whatever a role may grant there.
func (j *judge) holdsEverything(where scope) bool {
	return j.holdsResources(where) && (j.urls || !where.clusterWide())
}

func (j *judge) holdsResources(where scope) bool {
	free, known := j.free[where]
	if !known {
		free = len(j.work.uncovered(j.held.rules(where), everyResource)) == 0
		j.free[where] = free
	}
	return free
}
