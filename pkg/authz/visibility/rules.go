package visibility

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	verbGet    = "get"
	verbList   = "list"
	verbCreate = "create"

	// A caller with permission to create managedclusterviews can find the resources of the managed
	// cluster.
	viewGroup    = "view.open-cluster-management.io"
	viewResource = "managedclusterviews"
)

// maxMemo bounds the decisions that one set of rules remembers.
const maxMemo = 1024

// fingerprint is equal only for equal content.
type fingerprint [sha256.Size]byte

// ruleSet contains the rules of one or several roles that affect visibility. The nil
// ruleSet grants nothing.
//
// Rules are stored by resource, not broken down into atoms: their number would be the
// product of three lists of any length.
type ruleSet struct {
	fingerprint fingerprint
	// view is set if the rules allow to create managedclusterviews.
	view bool
	// common is set for the rules of a default ClusterRole, which every cluster has.
	common bool
	// gets are the rules that allow to get objects of the group of ManagedClusters, or nil.
	gets *ruleSet
	// anyResource are the rules for all resources, byResource those for single ones.
	// Rules without names come first.
	anyResource []rule
	byResource  map[string][]rule
	// names caches the names that several rules grant together.
	names atomic.Pointer[map[groupResource][]string]
}

type groupResource struct{ group, resource string }

// rule allows to list resources of its groups.
type rule struct {
	anyGroup bool
	// groups and names are sorted. No names stand for all names.
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

// newRuleSet returns the rules of a role that allow to list resources, to create
// managedclusterviews or to get ManagedClusters and sets, or nil if there are none.
func newRuleSet(given []rbacv1.PolicyRule) *ruleSet {
	set := newRulesFor(verbList, "", given)
	set.gets = newRulesFor(verbGet, clusterv1.GroupName, given)
	if set.gets.empty() {
		set.gets = nil
	}
	set.view = slices.ContainsFunc(given, allowsView)
	if set.empty() && set.gets == nil && !set.view {
		return nil
	}
	digest := newDigest()
	digest.bytes(set.fingerprint[:])
	digest.flag(set.view)
	if set.gets != nil {
		digest.bytes(set.gets.fingerprint[:])
	}
	set.fingerprint = digest.sum()
	return set
}

// newRulesFor returns the rules that allow a verb for resources of a group, or of any group if it is empty.
func newRulesFor(verb, group string, given []rbacv1.PolicyRule) *ruleSet {
	set := &ruleSet{}
	digest := newDigest()
	for i := range given {
		set.add(&given[i], verb, group, digest)
	}
	set.fingerprint = digest.sum()
	set.arrange()
	return set
}

func (s *ruleSet) empty() bool { return len(s.anyResource) == 0 && len(s.byResource) == 0 }

// allowsView reports whether a rule allows to create managedclusterviews. A create request has no name, so a rule with
// names does not allow it.
func allowsView(r rbacv1.PolicyRule) bool {
	has := func(list []string, all, wanted string) bool {
		return slices.Contains(list, all) || slices.Contains(list, wanted)
	}
	return has(r.Verbs, rbacv1.VerbAll, verbCreate) && has(r.APIGroups, rbacv1.APIGroupAll, viewGroup) &&
		has(r.Resources, rbacv1.ResourceAll, viewResource) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, ""))
}

// DefaultRoleLabel is the label of the default ClusterRoles of an API server. Informers of
// ClusterRoles must keep it.
const DefaultRoleLabel = "kubernetes.io/bootstrapping"

// defaultRole is the value of DefaultRoleLabel.
const defaultRole = "rbac-defaults"

// asDefault marks the rules as rules of a default ClusterRole.
func (s *ruleSet) asDefault() *ruleSet {
	s.common = true
	digest := newDigest()
	digest.bytes(s.fingerprint[:])
	digest.flag(s.common)
	s.fingerprint = digest.sum()
	return s
}

// Equal implements rbac.Rules.
func (s *ruleSet) Equal(other *ruleSet) bool { return s.fingerprint == other.fingerprint }

func (s *ruleSet) add(given *rbacv1.PolicyRule, verb, group string, digest *digest) {
	if len(given.APIGroups) == 0 || len(given.Resources) == 0 ||
		!slices.Contains(given.Verbs, rbacv1.VerbAll) && !slices.Contains(given.Verbs, verb) {
		return
	}
	groups, resources, names := sorted(given.APIGroups), sorted(given.Resources), sorted(given.ResourceNames)
	anyGroup := slices.Contains(groups, rbacv1.APIGroupAll)
	anyResource := slices.Contains(resources, rbacv1.ResourceAll)
	if group != "" && !anyGroup && !slices.Contains(groups, group) {
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

// arrange sorts rules without names first.
func (s *ruleSet) arrange() {
	namelessFirst := func(a, b rule) int { return min(len(a.names), 1) - min(len(b.names), 1) }
	slices.SortStableFunc(s.anyResource, namelessFirst)
	for _, rules := range s.byResource {
		slices.SortStableFunc(rules, namelessFirst)
	}
}

// joined returns the union of sets.
func joined(sets []*ruleSet) *ruleSet {
	switch len(sets) {
	case 0:
		return nil
	case 1:
		return sets[0]
	}
	all := &ruleSet{byResource: map[string][]rule{}}
	digest := newDigest()
	var gets []*ruleSet
	for _, set := range sets {
		digest.bytes(set.fingerprint[:])
		all.view = all.view || set.view
		if set.gets != nil {
			gets = append(gets, set.gets)
		}
		all.anyResource = append(all.anyResource, set.anyResource...)
		for resource, rules := range set.byResource {
			all.byResource[resource] = append(all.byResource[resource], rules...)
		}
	}
	all.gets = joined(gets)
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
		// If another goroutine wins the race, the next call caches the names.
		s.names.CompareAndSwap(known, &more)
	}
	return names
}

// sorted returns a sorted copy without duplicates.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// digest computes fingerprints. Lengths separate strings.
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
