package rbac

import (
	"hash/maphash"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Marks are bits for pairs of a verb and a resource, by hash. Rules that share no mark with a request do not allow it. To
// compare marks is much faster than to compare rules.
type Marks [4]uint64

const (
	// maxMarked bounds the pairs of a rule.
	maxMarked = 100
	// markAny, in the first word, is the mark of rules for all verbs or resources and of rules with too many pairs.
	markAny = 1
	// markURL stands for all resources of requests for a path.
	markURL = "url"
)

var markSeed = maphash.MakeSeed()

// MarksOf returns the marks of rules.
func MarksOf(rules []rbacv1.PolicyRule) (m Marks) {
	for i := range rules {
		rule := &rules[i]
		resources := rule.Resources
		if len(rule.NonResourceURLs) > 0 {
			resources = append(resources[:len(resources):len(resources)], markURL)
		}
		if len(rule.Verbs)*len(resources) > maxMarked || slices.Contains(rule.Verbs, rbacv1.VerbAll) || slices.ContainsFunc(resources, hasWildcard) {
			m[0] |= markAny
			continue
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
	m[sum%4] |= 1 << (sum / 4 % 64)
}

// Marks returns the marks of a request: rules that allow it have one of them.
func (q *Request) Marks() Marks {
	m := Marks{markAny}
	if q.NonResource {
		m.add(q.Verb, markURL)
	} else {
		m.add(q.Verb, q.Resource)
	}
	return m
}

// Share reports whether both have a mark.
func (m *Marks) Share(other *Marks) bool {
	return m[0]&other[0]|m[1]&other[1]|m[2]&other[2]|m[3]&other[3] != 0
}
