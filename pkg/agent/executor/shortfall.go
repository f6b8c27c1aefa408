package executor

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

const (
	// A work of hundreds of manifests has a message for each in its status.
	maxRules       = 5
	maxRulesBytes  = 1000
	maxReasonBytes = 300
	// Names of RBAC objects have no bound, but messages of conditions do.
	maxMessageBytes = 8192
)

// shortfall is what an executor lacks to apply one object.
type shortfall struct {
	target work.Target
	// requests are those that are denied, and reasons what the cluster says about them.
	requests []access.Request
	reasons  []string
	// grant is what the executor may not grant; nil if it may, or there is nothing.
	grant *grantShortfall
	// unreadable is why it is not known what the object grants; nil if it is.
	unreadable error
	// asked are requests about other objects that the API server would have allowed to
	// the caller, which is the agent in mode Review.
	asked []access.Request
	// caller is why the agent must not write the object for an executor; may be empty.
	caller string
}

// grantShortfall is why an executor may not write a role or a binding.
type grantShortfall struct {
	*grant
	// rules are what it grants and the executor does not hold.
	rules []rbacv1.PolicyRule
	// unknown is set if the role that a binding refers to does not exist, tooMany
	// if there are too many rules to compare, and aggregated if the role collects
	// the rules of others, or has done so until now.
	unknown, tooMany, aggregated bool
	// undisclosed is set if it was not found out what is granted.
	undisclosed bool
}

func (s *shortfall) empty() bool {
	return len(s.requests) == 0 && s.grant == nil && s.unreadable == nil && len(s.asked) == 0 && s.caller == ""
}

// message says what is missing, and gives the rules that would be enough.
func (s *shortfall) message(executor types.NamespacedName) string {
	var parts []string
	if len(s.requests) > 0 {
		parts = append(parts, s.lacking(executor))
	}
	if s.grant != nil {
		parts = append(parts, s.grant.message(executor))
	}
	if s.unreadable != nil {
		parts = append(parts, s.unreadable.Error())
	}
	if len(s.asked) > 0 {
		parts = append(parts, asksText(executor, s.asked))
	}
	if s.caller != "" {
		parts = append(parts, callerText(executor, s.caller))
	}
	// Tools know the beginning from the agents of others.
	return clip(fmt.Sprintf("not allowed to apply the resource %s %s, %s %s: %s",
		s.target.Resource.Group, s.target.Resource.Resource, s.target.Namespace, s.target.Name, strings.Join(parts, "; ")), maxMessageBytes)
}

func (s *shortfall) lacking(executor types.NamespacedName) string {
	var verbs []string
	var rules []rbacv1.PolicyRule
	for _, request := range s.requests {
		verbs = append(verbs, request.Verb)
		rule := ruleOf(request)
		same := func(other rbacv1.PolicyRule) bool { return len(other.ResourceNames) == len(rule.ResourceNames) }
		if at := slices.IndexFunc(rules, same); at >= 0 {
			rules[at].Verbs = append(rules[at].Verbs, request.Verb)
		} else {
			rules = append(rules, rule)
		}
	}
	where := ""
	if s.target.Namespace != "" {
		where = fmt.Sprintf(" in namespace %q", s.target.Namespace)
	}
	text := fmt.Sprintf("the executor %s may not %s %s %q%s", executor, strings.Join(verbs, ", "), s.target.Resource.GroupResource(), s.target.Name, where)
	if reasons := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(s.reasons))), func(reason string) bool { return reason == "" }); len(reasons) > 0 {
		text += fmt.Sprintf(" (%s)", clip(strings.Join(reasons, ", "), maxReasonBytes))
	}
	word := "the rule "
	if len(rules) > 1 {
		word = "the rules "
	}
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = ruleText(rule)
	}
	return text + "; it takes " + holder(s.target.Namespace) + " with " + word + strings.Join(texts, " and ")
}

// ruleOf returns the rule that allows a request and nothing else.
func ruleOf(request access.Request) rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{request.Group}, Resources: []string{request.Resource}, Verbs: []string{request.Verb}}
	if request.Name != "" {
		rule.ResourceNames = []string{request.Name}
	}
	return rule
}

func (g *grantShortfall) message(executor types.NamespacedName) string {
	var text string
	switch {
	case g.undisclosed && g.ref != nil:
		text = fmt.Sprintf("the executor %s must also hold what the %s grants", executor, g.boundText())
	case g.undisclosed:
		text = fmt.Sprintf("the executor %s must also hold what the role grants", executor)
	case g.unknown:
		text = fmt.Sprintf("the executor %s may not bind the %s, which does not exist", executor, g.boundText())
	case g.aggregated:
		text = fmt.Sprintf("the executor %s does not hold every right on the cluster, as it takes to write a ClusterRole that collects the rules of others", executor)
	case g.tooMany && g.ref != nil:
		text = fmt.Sprintf("the %s has too many rules to find out whether the executor %s holds them", g.boundText(), executor)
	case g.tooMany:
		text = fmt.Sprintf("there are too many rules to find out whether the executor %s holds them", executor)
	case g.ref != nil:
		text = fmt.Sprintf("the executor %s does not hold what the %s grants: %s", executor, g.boundText(), rulesText(g.rules))
	default:
		text = fmt.Sprintf("the executor %s does not hold what the role grants: %s", executor, rulesText(g.rules))
	}
	// The broadest of the requests includes the others.
	request := g.requests[0]
	rule := ruleOf(request)
	also := ""
	if g.undisclosed {
		return text + ", or " + holder(g.namespace) + " with the rule " + ruleText(rule)
	}
	if !g.unknown && !g.tooMany && !g.aggregated {
		also = "these, or "
	}
	return text + "; it takes " + also + holder(g.namespace) + " with the rule " + ruleText(rule)
}

func (g *grantShortfall) boundText() string {
	if g.ref.Kind == "Role" && g.namespace != "" {
		return fmt.Sprintf("Role %q in namespace %q", g.ref.Name, g.namespace)
	}
	return fmt.Sprintf("%s %q", g.ref.Kind, g.ref.Name)
}

// holder is what a person must make for the executor.
func holder(namespace string) string {
	if namespace == "" {
		return "a ClusterRole, bound to it by a ClusterRoleBinding,"
	}
	return fmt.Sprintf("a Role in namespace %q, bound to it,", namespace)
}

// agentLacks says what an agent needs that may not find out about executors.
func agentLacks(executor types.NamespacedName, err error) string {
	return fmt.Sprintf("not applied: the agent may not find out what the executor %s may do; it takes a ClusterRole of the agent with the rules %s and %s: %v", executor,
		ruleText(rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}}),
		ruleText(rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{roles, "rolebindings", clusterRoles, "clusterrolebindings"}, Verbs: []string{"get", "list", "watch"}}),
		err)
}
