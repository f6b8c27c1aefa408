package accessreview

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ruleSet contains the rules of one role. It is immutable. Nil is an empty set.
type ruleSet struct {
	rules []rbacv1.PolicyRule
}

func (r *ruleSet) list() []rbacv1.PolicyRule {
	if r == nil {
		return nil
	}
	return r.rules
}

// Equal implements rbac.Rules. It accepts nil.
func (r *ruleSet) Equal(other *ruleSet) bool {
	return r == other || equality.Semantic.DeepEqual(r.list(), other.list())
}

// action is a request without the name of its object.
type action struct {
	verb, group, resource string
}

func actionOf(request Request) action {
	return action{verb: request.Verb, group: request.Group, resource: request.Resource}
}

// grant is the set of objects on which rules allow an action.
type grant struct {
	all   bool
	names sets.Set[string]
}

// allows reports whether a request for a name is allowed. If the request has no name, the name is
// empty.
func (g grant) allows(name string) bool { return g.all || g.names.Has(name) }

// grantOf returns the objects on which rules allow an action. It follows the RBAC authorizer.
func grantOf(rules []rbacv1.PolicyRule, of action) grant {
	var out grant
	for _, rule := range rules {
		if !covers(rule.Verbs, rbacv1.VerbAll, of.verb) || !covers(rule.APIGroups, rbacv1.APIGroupAll, of.group) || !coversResource(rule.Resources, of.resource) {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			return grant{all: true}
		}
		if out.names == nil {
			out.names = sets.New[string]()
		}
		out.names.Insert(rule.ResourceNames...)
	}
	return out
}

func covers(values []string, wildcard, value string) bool {
	return slices.Contains(values, wildcard) || slices.Contains(values, value)
}

func coversResource(values []string, resource string) bool {
	if covers(values, rbacv1.ResourceAll, resource) {
		return true
	}
	_, subresource, found := strings.Cut(resource, "/")
	return found && slices.Contains(values, "*/"+subresource)
}
