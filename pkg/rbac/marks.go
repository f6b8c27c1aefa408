package rbac

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Marks are a Bloom filter of pairs of a verb and a resource: each pair sets markBits bits, by hash. Rules that lack a bit of
// the pair of a request do not allow it. To compare marks is much faster than to compare rules.
type Marks [4]uint64

const (
	// maxMarked bounds the pairs of a rule.
	maxMarked = 100
	// With two bits for a pair, no seed makes many rule sets have the marks of a common request by chance.
	markBits = 2
	// markURL stands for all resources of requests for a path.
	markURL = "url"
)

var (
	markSeed = maphash.MakeSeed()
	// anyMarks are the marks of rules for all verbs or resources, and of rules with too many pairs.
	anyMarks = Marks{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
)

// MarksOf returns the marks of rules.
func MarksOf(rules []rbacv1.PolicyRule) (m Marks) {
	for i := range rules {
		rule := &rules[i]
		resources := rule.Resources
		if len(rule.NonResourceURLs) > 0 {
			resources = append(resources[:len(resources):len(resources)], markURL)
		}
		if len(rule.Verbs)*len(resources) > maxMarked || slices.Contains(rule.Verbs, rbacv1.VerbAll) || slices.ContainsFunc(resources, hasWildcard) {
			return anyMarks
		}
		for _, verb := range rule.Verbs {
			for _, resource := range resources {
				m.add(verb, resource)
			}
		}
	}
	return m
}

// hasWildcard reports whether a resource of a rule stands for all resources or for a subresource of all.
func hasWildcard(resource string) bool { return strings.HasPrefix(resource, rbacv1.ResourceAll) }

func (m *Marks) add(verb, resource string) {
	sum := maphash.Comparable(markSeed, [2]string{verb, resource})
	for range markBits {
		m[sum%4] |= 1 << (sum / 4 % 64)
		sum >>= 8
	}
}

// Marks returns the marks of a request.
func (q *Request) Marks() (m Marks) {
	if q.NonResource {
		m.add(q.Verb, markURL)
	} else {
		m.add(q.Verb, q.Resource)
	}
	return m
}

// MayAllow reports whether rules with these marks may allow a request with the marks asked.
func (m *Marks) MayAllow(asked *Marks) bool {
	return asked[0]&^m[0]|asked[1]&^m[1]|asked[2]&^m[2]|asked[3]&^m[3] == 0
}
