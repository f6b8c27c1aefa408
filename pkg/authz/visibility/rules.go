package visibility

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	verbList   = "list"
	verbCreate = "create"

	// viewGroup and viewResource are what a caller needs to create to see a managed cluster.
	viewGroup    = "view.open-cluster-management.io"
	viewResource = "managedclusterviews"
)

// maxMemo bounds the decisions that one set of rules remembers.
const maxMemo = 1024

// fingerprint is equal only for equal content.
type fingerprint [sha256.Size]byte

// ruleSet are the rules of one role, or of several, that decide what may be found.
// The nil ruleSet grants nothing.
//
// Rules are kept by resource rather than broken down into single groups, resources
// and names: their number is the product of three lists that anybody may make long.
type ruleSet struct {
	fingerprint fingerprint
	// view is set if managedclusterviews may be created.
	view bool
	// common is set for the rules of a ClusterRole that every cluster has.
	common bool
	// anyResource are the rules for every resource, byResource those that name one;
	// rules without names come first.
	anyResource []rule
	byResource  map[string][]rule
	// names remembers what takes several rules with names to put together.
	names atomic.Pointer[map[groupResource][]string]
}

type groupResource struct{ group, resource string }

// rule allows to list some resources of its groups.
type rule struct {
	anyGroup bool
	// groups and names are sorted. No names are all.
	groups, names []string
}

func (r *rule) matches(group string) bool {
	if r.anyGroup {
		return true
	}
	if len(r.groups) == 1 {
		return r.groups[0] == group
	}
	_, found := slices.BinarySearch(r.groups, group)
	return found
}

// newRuleSet keeps of a role's rules what concerns lists and managedclusterviews.
// It returns nil if nothing does.
func newRuleSet(given []rbacv1.PolicyRule) *ruleSet {
	var set ruleSet
	digest := newDigest()
	for i := range given {
		set.add(&given[i], digest)
	}
	if !set.view && len(set.anyResource) == 0 && len(set.byResource) == 0 {
		return nil
	}
	digest.flag(set.view)
	set.fingerprint = digest.sum()
	set.arrange()
	return &set
}

// DefaultRoleLabel is the label of the ClusterRoles that each API server makes for itself. Informers of
// ClusterRoles must keep it.
const DefaultRoleLabel = "kubernetes.io/bootstrapping"

// defaultRole is the value of DefaultRoleLabel.
const defaultRole = "rbac-defaults"

// newClusterRuleSet does the same for a ClusterRole.
func newClusterRuleSet(role *rbacv1.ClusterRole) *ruleSet {
	set := newRuleSet(role.Rules)
	if set != nil && role.Labels[DefaultRoleLabel] == defaultRole {
		set.common = true
		digest := newDigest()
		digest.bytes(set.fingerprint[:])
		digest.flag(set.common)
		set.fingerprint = digest.sum()
	}
	return set
}

func (s *ruleSet) add(given *rbacv1.PolicyRule, digest *digest) {
	if len(given.APIGroups) == 0 || len(given.Resources) == 0 {
		return
	}
	groups, resources, names := sorted(given.APIGroups), sorted(given.Resources), sorted(given.ResourceNames)
	anyGroup := slices.Contains(groups, rbacv1.APIGroupAll)
	anyResource := slices.Contains(resources, rbacv1.ResourceAll)
	anyVerb := slices.Contains(given.Verbs, rbacv1.VerbAll)

	// A create has no name, so a rule with names does not allow it.
	if (anyVerb || slices.Contains(given.Verbs, verbCreate)) &&
		(anyGroup || slices.Contains(groups, viewGroup)) &&
		(anyResource || slices.Contains(resources, viewResource)) &&
		(len(names) == 0 || names[0] == "") {
		s.view = true
	}
	if !anyVerb && !slices.Contains(given.Verbs, verbList) {
		return
	}
	digest.strings(groups)
	digest.strings(resources)
	digest.strings(names)
	listed := rule{anyGroup: anyGroup, groups: groups, names: names}
	if anyResource {
		s.anyResource = append(s.anyResource, listed)
		return
	}
	if s.byResource == nil {
		s.byResource = map[string][]rule{}
	}
	for _, resource := range resources {
		s.byResource[resource] = append(s.byResource[resource], listed)
	}
}

// arrange puts what decides at once before what takes names.
func (s *ruleSet) arrange() {
	namelessFirst := func(a, b rule) int { return min(len(a.names), 1) - min(len(b.names), 1) }
	slices.SortStableFunc(s.anyResource, namelessFirst)
	for _, rules := range s.byResource {
		slices.SortStableFunc(rules, namelessFirst)
	}
}

// joined makes one set of several, for those that are asked for every resource.
func joined(sets []*ruleSet) *ruleSet {
	switch len(sets) {
	case 0:
		return nil
	case 1:
		return sets[0]
	}
	all := &ruleSet{byResource: map[string][]rule{}}
	digest := newDigest()
	for _, set := range sets {
		digest.bytes(set.fingerprint[:])
		all.view = all.view || set.view
		all.anyResource = append(all.anyResource, set.anyResource...)
		for resource, rules := range set.byResource {
			all.byResource[resource] = append(all.byResource[resource], rules...)
		}
	}
	all.fingerprint = digest.sum()
	all.arrange()
	return all
}

func (s *ruleSet) whole() bool {
	return s != nil && slices.ContainsFunc(s.anyResource, func(r rule) bool { return r.anyGroup && len(r.names) == 0 })
}

func (s *ruleSet) decide(group, resource string) Decision {
	if s == nil {
		return Decision{}
	}
	var names []string
	several := false
	for _, rules := range [...][]rule{s.anyResource, s.byResource[resource]} {
		for i := range rules {
			switch r := &rules[i]; {
			case !r.matches(group):
			case len(r.names) == 0:
				return Decision{All: true}
			case names == nil:
				names = r.names
			default:
				several = true
			}
		}
	}
	if several {
		names = s.allNames(groupResource{group, resource})
	}
	return Decision{Names: names}
}

func (s *ruleSet) allNames(key groupResource) []string {
	known := s.names.Load()
	if known != nil {
		if names, found := (*known)[key]; found {
			return names
		}
	}
	var names []string
	for _, rules := range [...][]rule{s.anyResource, s.byResource[key.resource]} {
		for i := range rules {
			if rules[i].matches(key.group) {
				names = append(names, rules[i].names...)
			}
		}
	}
	names = sorted(names)
	if known == nil {
		s.names.CompareAndSwap(nil, &map[groupResource][]string{key: names})
	} else if len(*known) < maxMemo {
		more := maps.Clone(*known)
		more[key] = names
		// Whoever loses the race remembers it the next time.
		s.names.CompareAndSwap(known, &more)
	}
	return names
}

// sorted copies a list without repetitions.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// digest makes fingerprints; lengths keep neighbouring strings apart.
type digest struct{ hash hash.Hash }

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) number(n int) {
	var buffer [8]byte
	binary.BigEndian.PutUint64(buffer[:], uint64(n))
	d.hash.Write(buffer[:])
}

func (d *digest) bytes(b []byte) {
	d.number(len(b))
	d.hash.Write(b)
}

func (d *digest) strings(list []string) {
	d.number(len(list))
	for _, s := range list {
		d.bytes([]byte(s))
	}
}

func (d *digest) flag(set bool) {
	if set {
		d.number(1)
	} else {
		d.number(0)
	}
}

func (d *digest) sum() fingerprint { return fingerprint(d.hash.Sum(nil)) }
