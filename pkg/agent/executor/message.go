package executor

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// The status of a ManifestWork contains a message for each of its manifests.
	maxRules       = 5
	maxRulesBytes  = 1000
	maxReasonBytes = 300
	// Names of RBAC objects are not bounded, but the messages of conditions are.
	maxMessageBytes = 8192
)

// shortfall contains the permissions that an executor lacks to apply one object.
type shortfall struct {
	target work.Target
	// requests are the denied requests. reasons are the reasons that the cluster returned.
	requests []authorizationv1.ResourceAttributes
	reasons  []string
	// grant is the role or binding that the executor is not allowed to write, or nil.
	grant *grantShortfall
	// unreadable is the error of a role or binding that cannot be read, or nil.
	unreadable error
}

// grantShortfall contains the reason why an executor is not allowed to write a role or a binding.
type grantShortfall struct {
	*grant
	// rules are the granted rules that the executor does not hold.
	rules []rbacv1.PolicyRule
	// unknown is set if the role that a binding refers to does not exist. tooMany is set if the
	// comparison of the rules exceeds the budget. aggregated is set if the role aggregates the
	// rules of other roles, or has done so until now.
	unknown, tooMany, aggregated bool
	// undisclosed is set if the message must not contain the rules.
	undisclosed bool
}

func (s *shortfall) empty() bool {
	return len(s.requests) == 0 && s.grant == nil && s.unreadable == nil
}

// message describes the missing permissions and the rules that would grant them.
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
	// Tools match this prefix, which upstream OCM agents use.
	return rbac.Clip(fmt.Sprintf("not allowed to apply the resource %s %s, %s %s: %s",
		s.target.Resource.Group, s.target.Resource.Resource, s.target.Namespace, s.target.Name, strings.Join(parts, "; ")), maxMessageBytes)
}

func (s *shortfall) lacking(executor types.NamespacedName) string {
	var verbs []string
	var rules []rbacv1.PolicyRule
	for _, request := range s.requests {
		verbs = append(verbs, request.Verb)
		rule := rbac.RuleFor(request)
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
	text := fmt.Sprintf("the executor %s cannot %s %s %q%s", executor, strings.Join(verbs, ", "), s.target.Resource.GroupResource(), s.target.Name, where)
	if reasons := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(s.reasons))), func(reason string) bool { return reason == "" }); len(reasons) > 0 {
		text += fmt.Sprintf(" (%s)", rbac.Clip(strings.Join(reasons, ", "), maxReasonBytes))
	}
	return text + "; grant it with " + rbac.RoleText(s.target.Namespace, rules...)
}

func (g *grantShortfall) message(executor types.NamespacedName) string {
	object := "the role"
	if g.ref != nil {
		object = g.key.String()
	}
	// The first request is the broadest.
	role := rbac.RoleText(g.namespace, rbac.RuleFor(g.requests[0]))
	switch {
	case g.undisclosed:
		return fmt.Sprintf("the executor %s must also hold the permissions that %s grants, or %s", executor, object, role)
	case g.unknown:
		return fmt.Sprintf("the executor %s cannot bind %s, which does not exist; grant it with %s", executor, object, role)
	case g.aggregated:
		return fmt.Sprintf("the executor %s does not hold all permissions on the cluster, which writing an aggregated ClusterRole requires; grant it with %s", executor, role)
	case g.tooMany:
		return fmt.Sprintf("%s has too many rules to compare with the permissions of the executor %s; grant it with %s", object, executor, role)
	}
	return fmt.Sprintf("the executor %s does not hold the permissions that %s grants: %s; grant these, or %s",
		executor, object, rbac.RulesText(g.rules, maxRules, maxRulesBytes), role)
}
