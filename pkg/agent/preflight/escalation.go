package preflight

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	roles        = "roles"
	clusterRoles = "clusterroles"
)

// grant is a role or a binding that a ManifestWork delivers. Writing one requires that the
// executor holds the permissions that it grants, or is allowed all requests.
type grant struct {
	// requests are the requests with the verb escalate or bind.
	requests []accessreview.Request
	// key identifies the role, or the role that a binding refers to.
	key rbac.Key
	// namespace is the namespace of the object, in which the executor must hold the permissions.
	namespace string
	strategy  workv1.UpdateStrategyType

	// ref is the role that a binding refers to. It is nil for a role.
	ref *rbacv1.RoleRef
	// rules are the rules in the manifest of a role. If the manifest does not set rules, given is
	// false, and the role on the cluster keeps its rules.
	rules []rbacv1.PolicyRule
	given bool
	// aggregated is set if the role aggregates the rules of other roles.
	aggregated bool
}

// grantOf returns the grant of a target, or nil if the target is neither a role nor a binding. It
// returns an error if the manifest is not a valid role or binding.
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
		return nil, fmt.Errorf("the rules or references cannot be read: %w", err)
	}
	g := &grant{namespace: target.Namespace, strategy: target.Strategy}
	switch target.Resource.Resource {
	case clusterRoles:
		g.aggregated = content.AggregationRule != nil && len(content.AggregationRule.ClusterRoleSelectors) > 0
		fallthrough
	case roles:
		g.key = rbac.Key{Kind: rbac.KindRole, Namespace: target.Namespace, Name: target.Name}
		if target.Resource.Resource == clusterRoles {
			g.key.Kind = rbac.KindClusterRole
		}
		g.rules = content.Rules
		_, g.given = target.Object.Object["rules"]
		g.requests = escalations(mode, target)
	case "rolebindings", "clusterrolebindings":
		ref := content.RoleRef
		if ref.APIGroup == "" {
			ref.APIGroup = rbacv1.GroupName
		}
		g.ref, g.key = &ref, rbac.Key{Kind: ref.Kind, Name: ref.Name}
		resource := clusterRoles
		switch ref.Kind {
		case rbac.KindRole:
			resource, g.key.Namespace = roles, target.Namespace
		case rbac.KindClusterRole:
		default:
			return nil, fmt.Errorf("roleRef.kind: Unsupported value: %q: supported values: Role, ClusterRole", ref.Kind)
		}
		g.requests = []accessreview.Request{{Verb: "bind", Group: ref.APIGroup, Version: "*", Resource: resource, Namespace: target.Namespace, Name: ref.Name}}
	default:
		return nil, nil
	}
	return g, nil
}

// escalations returns the requests for escalate in each form that the API server uses. For a POST,
// the API server does not know the name.
func escalations(mode Mode, target work.Target) []accessreview.Request {
	named := accessreview.Request{
		Verb: "escalate", Group: rbacv1.GroupName, Version: "*", Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if mode == Review || !posts(target) {
		return []accessreview.Request{named}
	}
	unnamed := named
	unnamed.Name = ""
	if target.Strategy == workv1.UpdateStrategyTypeCreateOnly {
		return []accessreview.Request{unnamed}
	}
	return []accessreview.Request{unnamed, named}
}

// keeps reports whether the role on the cluster keeps its rules when the target is applied.
func (g *grant) keeps() bool {
	return !g.given && !g.aggregated && g.strategy != workv1.UpdateStrategyTypeCreateOnly
}

// wanted returns the rules that an executor must hold to write a role. If the role on the cluster
// keeps its existing rules, these are returned.
func (g *grant) wanted(existing []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	switch {
	case g.aggregated:
		return rbac.Everything
	case g.keeps():
		return existing
	}
	return g.rules
}

// replaces reports whether a binding that is written after the role certainly grants the rules of
// the manifest, and not the rules of a role on the cluster.
func (g *grant) replaces(mode Mode) bool {
	if g.strategy == workv1.UpdateStrategyTypeCreateOnly {
		return false
	}
	// In mode Review, the write of the role may fail. The agent then still writes the binding, and
	// no API server checks it.
	return g.aggregated || mode == Impersonate && g.given
}

// bound returns the rules that a binding grants. If the same ManifestWork delivers the role, the
// rules of the manifest are included; otherwise they are the rules of the role on the cluster. It
// returns false if the role does not exist.
func bound(mode Mode, delivered *grant, existing []rbacv1.PolicyRule, exists bool) ([]rbacv1.PolicyRule, bool) {
	switch {
	case delivered == nil:
		return existing, exists
	case delivered.strategy == workv1.UpdateStrategyTypeCreateOnly && exists:
		return existing, true
	case delivered.aggregated:
		return rbac.Everything, true
	case delivered.replaces(mode):
		return delivered.rules, true
	}
	return append(existing[:len(existing):len(existing)], delivered.rules...), true
}
