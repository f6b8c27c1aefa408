package access

import (
	"hash/maphash"
	"strings"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
)

// word is a string that all users of it share. The runtime frees it after the last one.
type word = unique.Handle[string]

var (
	anyWord  = unique.Make("*")
	noString = unique.Make("")
	// someWord differs from every string.
	someWord word
)

// ruleSet contains the rules of one or several roles. It is immutable except for users.
type ruleSet struct {
	hash uint64
	next *ruleSet
	// words contains the lists of all rules, one after the other.
	words []word
	rules []rule
	// escalations are the rules that allow to gain other permissions.
	escalations []escalation
	users       []*role
	// at is the position in the list of all rule sets.
	at uint32
}

// The marks of a rule set are a bit for each of its resources, by hash, and one of these bits.
const (
	markAny  = 1 << 63 // rules for all resources, or for a subresource of all resources
	markURLs = 1 << 62
	markBits = 62
)

// marksOf returns the marks of a rule set. A rule set without the mark of a request does not allow it.
func marksOf(r *ruleSet) uint64 {
	var marks uint64
	for i := range r.rules {
		_, _, resources, _, urls := r.lists(i)
		if len(urls) > 0 {
			marks |= markURLs
		}
		for _, resource := range resources {
			if text := resource.Value(); strings.HasPrefix(text, "*") {
				marks |= markAny
			} else {
				marks |= mark(text)
			}
		}
	}
	return marks
}

var markSeed = maphash.MakeSeed()

func mark(resource string) uint64 { return 1 << (maphash.String(markSeed, resource) % markBits) }

// rule contains the ends of its lists in the words of the ruleSet. The first list begins
// where the previous rule ends.
type rule struct{ verbs, groups, resources, names, urls uint32 }

func (r *ruleSet) lists(i int) (verbs, groups, resources, names, urls []word) {
	var start uint32
	if i > 0 {
		start = r.rules[i-1].urls
	}
	to := r.rules[i]
	return r.words[start:to.verbs], r.words[to.verbs:to.groups], r.words[to.groups:to.resources],
		r.words[to.resources:to.names], r.words[to.names:to.urls]
}

// lists returns the lists of a rule in the order of rule.
func lists(rule *rbacv1.PolicyRule) [5][]string {
	return [...][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs}
}

func newRuleSet(given []rbacv1.PolicyRule, hash uint64) *ruleSet {
	r := &ruleSet{hash: hash, rules: make([]rule, len(given))}
	n := 0
	for i := range given {
		for _, list := range lists(&given[i]) {
			n += len(list)
		}
	}
	r.words = make([]word, 0, n)
	for i := range given {
		var ends [5]uint32
		for at, list := range lists(&given[i]) {
			for _, text := range list {
				r.words = append(r.words, unique.Make(text))
			}
			ends[at] = uint32(len(r.words))
		}
		r.rules[i] = rule{ends[0], ends[1], ends[2], ends[3], ends[4]}
	}
	r.escalations = escalationsOf(r)
	return r
}

func (r *ruleSet) equal(given []rbacv1.PolicyRule) bool {
	if len(r.rules) != len(given) {
		return false
	}
	for i := range given {
		verbs, groups, resources, names, urls := r.lists(i)
		for at, list := range lists(&given[i]) {
			words := [...][]word{verbs, groups, resources, names, urls}[at]
			if len(words) != len(list) {
				return false
			}
			for j, text := range list {
				if words[j].Value() != text {
					return false
				}
			}
		}
	}
	return true
}

// policyRule returns a rule in the form of the API.
func (r *ruleSet) policyRule(i int) rbacv1.PolicyRule {
	verbs, groups, resources, names, urls := r.lists(i)
	return rbacv1.PolicyRule{
		Verbs: texts(verbs), APIGroups: texts(groups), Resources: texts(resources), ResourceNames: texts(names), NonResourceURLs: texts(urls),
	}
}

func texts(words []word) []string {
	if len(words) == 0 {
		return nil
	}
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = w.Value()
	}
	return list
}

// request is Attributes in the form in which rules are compared.
type request struct {
	verb, group, name word
	// resource includes the subresource. anyParent is the form of rules for the
	// subresource of all resources; it is empty without subresource.
	resource, anyParent word
	nonResource         bool
	path                string
	// marks are those of which a rule set that allows the request has one.
	marks uint64
}

func newRequest(a *Attributes) *request {
	q := &request{verb: unique.Make(a.Verb), nonResource: a.NonResource, path: a.Path, anyParent: noString}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
		q.anyParent = unique.Make("*/" + a.Subresource)
	}
	q.resource, q.group = unique.Make(resource), unique.Make(a.Group)
	q.name = unique.Make(all(a.Name))
	if q.marks = markAny | mark(resource); a.NonResource {
		q.marks = markURLs
	}
	return q
}

// all returns the empty string for "*".
func all(name string) string {
	if name == "*" {
		return ""
	}
	return name
}

// allows returns the index of the first rule that allows the request, or -1.
func (r *ruleSet) allows(q *request) int {
	for i := range r.rules {
		verbs, groups, resources, names, urls := r.lists(i)
		if !containsOrAny(verbs, q.verb) {
			continue
		}
		if q.nonResource {
			if matchesPath(urls, q.path) {
				return i
			}
			continue
		}
		if containsOrAny(groups, q.group) && q.matchesResource(resources) && (len(names) == 0 || contains(names, q.name)) {
			return i
		}
	}
	return -1
}

func (q *request) matchesResource(resources []word) bool {
	for _, r := range resources {
		if r == anyWord || r == q.resource || r == q.anyParent && q.anyParent != noString {
			return true
		}
	}
	return false
}

func contains(words []word, w word) bool {
	for _, other := range words {
		if other == w {
			return true
		}
	}
	return false
}

func containsOrAny(words []word, w word) bool {
	for _, other := range words {
		if other == w || other == anyWord {
			return true
		}
	}
	return false
}

func matchesPath(urls []word, path string) bool {
	for _, u := range urls {
		url := u.Value()
		if url == path || strings.HasSuffix(url, "*") && strings.HasPrefix(path, strings.TrimRight(url, "*")) {
			return true
		}
	}
	return false
}

// hashRules returns a hash of rules, and the number of bytes of their text.
func hashRules(seed maphash.Seed, rules []rbacv1.PolicyRule) (sum uint64, size int) {
	h := newHash(seed)
	for i := range rules {
		for _, list := range lists(&rules[i]) {
			h.number(len(list))
			for _, text := range list {
				h.text(text)
			}
		}
	}
	return h.Sum64(), h.size
}

// hash is a hash of texts. Its seed is random, so that nobody can choose texts with equal
// hashes.
type hash struct {
	maphash.Hash
	size int
}

func newHash(seed maphash.Seed) *hash {
	h := &hash{}
	h.SetSeed(seed)
	return h
}

func (h *hash) number(n int) { maphash.WriteComparable(&h.Hash, n) }

func (h *hash) text(s string) {
	h.number(len(s))
	_, _ = h.WriteString(s)
	h.size += len(s)
}
