package executor

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	roles        = "roles"
	clusterRoles = "clusterroles"

	verbEscalate = "escalate"
	verbBind     = "bind"
)

// everything is what a role that collects the rules of others may grant.
var everything = []rbacv1.PolicyRule{
	{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
	{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
}

// roleKey names a role; the namespace is empty for a ClusterRole.
type roleKey struct{ namespace, name string }

// grant is a role or a binding that a work delivers. To write one takes that the
// executor holds what it gives, or a right of its own.
type grant struct {
	// requests are that right: all of them must be allowed.
	requests []access.Request
	// namespace is where it is, and so where what the executor holds counts.
	namespace string
	strategy  workv1.UpdateStrategyType

	// ref is the role that a binding refers to; nil for a role.
	ref *rbacv1.RoleRef
	// rules are those of a role. It keeps what it has if they are not given.
	rules []rbacv1.PolicyRule
	given bool
	// aggregated is whether a role collects the rules of others.
	aggregated bool
}

// grantOf returns what a target grants, nil if nothing. Its error is of a manifest
// that is neither a role nor a binding, though it is delivered as one.
func grantOf(mode Mode, target work.Target) (*grant, error) {
	if target.Resource.Group != rbacv1.GroupName || target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return nil, nil
	}
	var content struct {
		Rules           []rbacv1.PolicyRule     `json:"rules"`
		AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
		RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(target.Object.Object, &content); err != nil {
		return nil, fmt.Errorf("what it grants cannot be read: %w", err)
	}
	g := &grant{namespace: target.Namespace, strategy: target.Strategy}
	switch target.Resource.Resource {
	case clusterRoles:
		g.aggregated = content.AggregationRule != nil && len(content.AggregationRule.ClusterRoleSelectors) > 0
		fallthrough
	case roles:
		g.rules = content.Rules
		_, g.given = target.Object.Object["rules"]
		g.requests = escalations(mode, target)
	case "rolebindings", "clusterrolebindings":
		ref := content.RoleRef
		if ref.APIGroup == "" {
			ref.APIGroup = rbacv1.GroupName
		}
		resource := resourceOf(ref.Kind)
		if resource == "" {
			return nil, fmt.Errorf("it refers to a role of the unknown kind %q", ref.Kind)
		}
		g.ref = &ref
		g.requests = []access.Request{{Verb: verbBind, Group: ref.APIGroup, Version: "*", Resource: resource, Namespace: target.Namespace, Name: ref.Name}}
	default:
		return nil, nil
	}
	return g, nil
}

func resourceOf(roleKind string) string {
	switch roleKind {
	case "Role":
		return roles
	case "ClusterRole":
		return clusterRoles
	}
	return ""
}

// escalations are asked in each form in which the API server will: when it creates
// the role by POST, it does not look at the name.
func escalations(mode Mode, target work.Target) []access.Request {
	named := access.Request{
		Verb: verbEscalate, Group: rbacv1.GroupName, Version: "*", Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if mode == Review || !posts(target) {
		return []access.Request{named}
	}
	unnamed := named
	unnamed.Name = ""
	if target.Strategy == workv1.UpdateStrategyTypeCreateOnly {
		return []access.Request{unnamed}
	}
	return []access.Request{unnamed, named}
}

// role is the key of the role that a binding refers to.
func (g *grant) role() roleKey {
	if g.ref.Kind == "Role" {
		return roleKey{g.namespace, g.ref.Name}
	}
	return roleKey{"", g.ref.Name}
}

// keeps is whether writing the role leaves it with rules that it has already.
func (g *grant) keeps() bool {
	return !g.given && !g.aggregated && g.strategy != workv1.UpdateStrategyTypeCreateOnly
}

// wanted are the rules that an executor must hold to write a role. existing are
// those of the role on the cluster, which matter if it keeps them.
func (g *grant) wanted(existing []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	switch {
	case g.aggregated:
		return everything
	case g.keeps():
		return existing
	}
	return g.rules
}

// replaces is whether a binding that is written after the role gives the rules
// of the manifest for sure, whatever the cluster has under that name.
func (g *grant) replaces(mode Mode) bool {
	if g.strategy == workv1.UpdateStrategyTypeCreateOnly {
		return false
	}
	// Who reviews must think of roles that cannot be written: the binding that
	// follows is written all the same, and nobody else judges it.
	return g.aggregated || mode == Impersonate && g.given
}

// bound are the rules that a binding gives: those of the role that the same work
// delivers, nil if it delivers none, or those that the cluster has. It is false
// if there is no such role.
func bound(mode Mode, delivered *grant, existing []rbacv1.PolicyRule, exists bool) ([]rbacv1.PolicyRule, bool) {
	switch {
	case delivered == nil:
		return existing, exists
	case delivered.strategy == workv1.UpdateStrategyTypeCreateOnly && exists:
		return existing, true
	case delivered.aggregated:
		return everything, true
	case delivered.replaces(mode):
		return delivered.rules, true
	}
	return append(existing[:len(existing):len(existing)], delivered.rules...), true
}
