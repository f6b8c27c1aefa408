package rbac

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Request is a request that rules may allow. Its zero Name stands for all names.
type Request struct {
	Verb, Group string
	// Resource includes the subresource, as in pods/log.
	Resource, Name string
	// NonResource selects Path instead of the fields of a resource.
	NonResource bool
	Path        string
}

// RuleSet decides by the rules of a role, as the RBAC authorizer of Kubernetes does. It is immutable, and may be used
// concurrently.
type RuleSet struct {
	// Rules must not be changed.
	Rules       []rbacv1.PolicyRule
	Fingerprint Fingerprint
	// lists is nil before the first call of Names.
	lists atomic.Pointer[ruleLists]
}

// NewRuleSet returns a RuleSet that keeps the rules.
func NewRuleSet(rules []rbacv1.PolicyRule) *RuleSet {
	return &RuleSet{Rules: rules, Fingerprint: FingerprintOf(rules)}
}

// Bytes returns the size of the text of the rules.
func (s *RuleSet) Bytes() int { return len(contentOf(s.Rules)) }

// Allows returns the index of the first rule that allows the request, or -1.
func (s *RuleSet) Allows(q *Request) int {
	for i := range s.Rules {
		if rule := &s.Rules[i]; q.Matches(rule) && (q.NonResource || len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, q.Name)) {
			return i
		}
	}
	return -1
}

// HasVerb reports whether a rule contains any of the verbs.
func (s *RuleSet) HasVerb(verbs ...string) bool {
	return slices.ContainsFunc(s.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(verbs, func(verb string) bool { return ContainsOrAll(rule.Verbs, verb) })
	})
}

// Matches reports whether a rule allows the request for some name.
func (q *Request) Matches(rule *rbacv1.PolicyRule) bool {
	switch {
	case !ContainsOrAll(rule.Verbs, q.Verb):
		return false
	case q.NonResource:
		return slices.ContainsFunc(rule.NonResourceURLs, q.hasURL)
	}
	return ContainsOrAll(rule.APIGroups, q.Group) && q.hasResource(rule.Resources)
}

// hasURL reports whether the URL of a rule includes the path.
func (q *Request) hasURL(url string) bool {
	return url == q.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(q.Path, strings.TrimRight(url, "*"))
}

func (q *Request) hasResource(resources []string) bool {
	if ContainsOrAll(resources, q.Resource) {
		return true
	}
	_, subresource, found := strings.Cut(q.Resource, "/")
	return found && slices.Contains(resources, "*/"+subresource)
}

// ContainsOrAll reports whether a list of a rule contains a word or "*".
func ContainsOrAll(list []string, word string) bool {
	for _, other := range list {
		if other == word || other == "*" {
			return true
		}
	}
	return false
}

// ruleLists are rules by resource, in a form in which the cost of a decision does not grow with the length of their lists.
type ruleLists struct {
	byResource map[string][]listedRule

	mu sync.RWMutex
	// names caches the names that several rules grant together.
	names map[Request][]string
}

// maxNames bounds the cached names of a RuleSet.
const maxNames = 1024

// listedRule is a rule with sorted lists. No names stand for all names.
type listedRule struct{ verbs, groups, names []string }

func (r *listedRule) matches(verb, group string) bool {
	return includesOrAll(r.verbs, verb) && includesOrAll(r.groups, group)
}

// includesOrAll reports whether a sorted list contains a word or "*".
func includesOrAll(sorted []string, word string) bool {
	if _, found := slices.BinarySearch(sorted, word); found {
		return true
	}
	_, all := slices.BinarySearch(sorted, "*")
	return all
}

func (s *RuleSet) listed() *ruleLists {
	if known := s.lists.Load(); known != nil {
		return known
	}
	lists := &ruleLists{byResource: map[string][]listedRule{}, names: map[Request][]string{}}
	for i := range s.Rules {
		rule := &s.Rules[i]
		r := listedRule{verbs: Sorted(rule.Verbs), groups: Sorted(rule.APIGroups), names: Sorted(rule.ResourceNames)}
		for _, resource := range Sorted(rule.Resources) {
			lists.byResource[resource] = append(lists.byResource[resource], r)
		}
	}
	s.lists.CompareAndSwap(nil, lists)
	return s.lists.Load()
}

// Names returns the names of the objects of a resource without subresource on which the rules allow a verb, sorted. all is
// true if they allow it on all objects.
func (s *RuleSet) Names(verb, group, resource string) (all bool, names []string) {
	lists := s.listed()
	several := false
	for _, rules := range [...][]listedRule{lists.byResource[rbacv1.ResourceAll], lists.byResource[resource]} {
		for i := range rules {
			switch r := &rules[i]; {
			case !r.matches(verb, group):
			case len(r.names) == 0:
				return true, nil
			case names == nil:
				names = r.names
			default:
				several = true
			}
		}
	}
	if several {
		names = lists.allNames(Request{Verb: verb, Group: group, Resource: resource})
	}
	return false, names
}

func (l *ruleLists) allNames(q Request) []string {
	l.mu.RLock()
	names, known := l.names[q]
	l.mu.RUnlock()
	if known {
		return names
	}
	for _, resource := range [...]string{rbacv1.ResourceAll, q.Resource} {
		rules := l.byResource[resource]
		for i := range rules {
			if rules[i].matches(q.Verb, q.Group) {
				names = append(names, rules[i].names...)
			}
		}
	}
	names = Sorted(names)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.names) < maxNames {
		l.names[q] = names
	}
	return names
}

// Sorted returns a sorted copy without duplicates.
func Sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
