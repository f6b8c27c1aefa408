package visibility

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// What a managed cluster reports to grant is bounded, so that no cluster makes searches of others expensive. A cluster that
// exceeds a bound grants nothing.
const (
	// maxGrants bounds the pairs of rules and a namespace.
	maxGrants = 5000
	// maxGrantBytes bounds the text of the different rules.
	maxGrantBytes = 1 << 20
)

// onHub is the name of the hub in the index of its RBAC.
const onHub = ""

// compiled contains the permissions of subjects on a cluster.
type compiled struct {
	grants  *grants
	anyView bool
	views   map[string]struct{}
	// fingerprint is equal only for the same permissions.
	fingerprint rbac.Fingerprint
}

// placedRules are rules that apply in a namespace, or everywhere if it is empty.
type placedRules struct {
	namespace string
	*rbac.RuleSet
}

func (p placedRules) compare(other placedRules) int {
	return cmp.Or(cmp.Compare(p.namespace, other.namespace), bytes.Compare(p.Fingerprint[:], other.Fingerprint[:]))
}

// compile returns the permissions of subjects on each known cluster of an index that grants some, and those of the given
// clusters that are not known. If bounded is true, clusters that exceed a bound grant nothing.
func compile(x *access.Index, subjects []rbac.Subject, clusters []string, bounded bool) (granted map[string]*compiled, unknown []string) {
	var all []placedRules
	sizes := map[*rbac.RuleSet]int{}
	// positions are the rules that apply on each cluster.
	positions := map[string][]int{}
	unknown = x.Grants(subjects, clusters, func(namespace string, rules *rbac.RuleSet, clusters []string) {
		if !rules.HasVerb(verbGet, verbList, verbCreate) {
			return
		}
		for _, cluster := range clusters {
			positions[cluster] = append(positions[cluster], len(all))
		}
		all = append(all, placedRules{namespace, rules})
		if _, known := sizes[rules]; bounded && !known {
			sizes[rules] = rules.Bytes()
		}
	})
	granted = make(map[string]*compiled, len(positions))
	// Many clusters have the same rules.
	same := map[string]*compiled{}
	for cluster, list := range positions {
		key := fmt.Sprint(list)
		if same[key] == nil {
			rules := make([]placedRules, len(list))
			size, counted := 0, map[*rbac.RuleSet]bool{}
			for i, at := range list {
				rules[i] = all[at]
				if set := rules[i].RuleSet; !counted[set] {
					counted[set] = true
					size += sizes[set]
				}
			}
			if bounded && (len(rules) > maxGrants || size > maxGrantBytes) {
				continue
			}
			same[key] = compileRules(rules)
		}
		granted[cluster] = same[key]
	}
	return granted, unknown
}

func compileRules(rules []placedRules) *compiled {
	slices.SortFunc(rules, placedRules.compare)
	c := &compiled{grants: &grants{namespaces: map[string][]*rbac.RuleSet{}}, views: map[string]struct{}{}}
	var content rbac.Content
	var wide []rbacv1.PolicyRule
	for _, placed := range rules {
		content.Add(placed.namespace)
		content.AddFingerprint(placed.Fingerprint)
		view := placed.Allows(&createView) >= 0
		switch {
		case placed.namespace == "":
			wide = append(wide, placed.Rules...)
			c.anyView = c.anyView || view
			continue
		case view:
			c.views[placed.namespace] = struct{}{}
		}
		c.grants.namespaces[placed.namespace] = append(c.grants.namespaces[placed.namespace], placed.RuleSet)
	}
	c.grants.wide = rbac.NewRuleSet(wide)
	c.fingerprint = content.Fingerprint()
	return c
}

// compileHub returns the permissions of an identity by the RBAC of the hub.
func compileHub(hub *access.Index, identity user.Info) *allowed {
	// The API server does not authorize its privileged group.
	if slices.Contains(identity.GetGroups(), user.SystemPrivilegedGroup) {
		return &allowed{hub: allGrants, anyView: true}
	}
	granted, _ := compile(hub, hubSubjects(identity), nil, false)
	c := granted[onHub]
	if c == nil {
		c = compileRules(nil)
	}
	return &allowed{hub: c.grants, anyView: c.anyView, views: c.views, fingerprint: c.fingerprint}
}

func (a *allowed) addClusters(granted map[string]*compiled) {
	if len(granted) == 0 {
		return
	}
	var content rbac.Content
	content.AddFingerprint(a.fingerprint)
	a.clusters = make(map[string]*grants, len(granted))
	for _, cluster := range slices.Sorted(maps.Keys(granted)) {
		a.clusters[cluster] = granted[cluster].grants
		content.Add(cluster)
		content.AddFingerprint(granted[cluster].fingerprint)
	}
	a.fingerprint = content.Fingerprint()
}

// updateOf returns the update of an index that an event of the RBAC of the hub requires, or false for objects of other kinds.
func updateOf(object any, gone bool) (*access.Update, bool) {
	u, known := access.ObjectUpdate(object, gone)
	for key, rules := range u.Roles {
		u.Roles[key] = relevant(rules)
	}
	return u, known
}

// Static returns the Scope of an identity on a hub with only the given Roles, ClusterRoles, RoleBindings and
// ClusterRoleBindings. It returns an error for an object of another kind.
func Static(objects []runtime.Object, identity user.Info) (Scope, error) {
	hub := access.New()
	hub.SetState(onHub, access.State{Known: true})
	for _, object := range objects {
		u, known := updateOf(object, false)
		if !known {
			return Scope{}, fmt.Errorf("%T is not an RBAC object", object)
		}
		hub.Update(onHub, u)
	}
	return Scope{allowed: compileHub(hub, identity).numbered()}, nil
}
