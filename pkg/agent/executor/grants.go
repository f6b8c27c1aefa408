package executor

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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
	requests []authorizationv1.ResourceAttributes
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
func grantOf(target work.Target) (*grant, error) {
	if target.Resource.Group != rbacv1.GroupName || target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return nil, nil
	}
	role, err := contentOf(target.Object)
	if err != nil {
		return nil, err
	}
	g := &grant{namespace: target.Namespace, strategy: target.Strategy}
	switch target.Resource.Resource {
	case clusterRoles:
		g.aggregated = role.aggregates()
		fallthrough
	case roles:
		g.key = rbac.Key{Kind: rbac.KindRole, Namespace: target.Namespace, Name: target.Name}
		if target.Resource.Resource == clusterRoles {
			g.key.Kind = rbac.KindClusterRole
		}
		g.rules = role.Rules
		_, g.given = target.Object.Object["rules"]
		g.requests = escalations(target)
	case "rolebindings", "clusterrolebindings":
		ref := role.RoleRef
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
		g.requests = []authorizationv1.ResourceAttributes{{Verb: "bind", Group: ref.APIGroup, Version: "*", Resource: resource, Namespace: target.Namespace, Name: ref.Name}}
	default:
		return nil, nil
	}
	return g, nil
}

// escalations returns the requests for escalate in each form that the API server uses. For a POST,
// the API server does not know the name.
func escalations(target work.Target) []authorizationv1.ResourceAttributes {
	named := authorizationv1.ResourceAttributes{
		Verb: "escalate", Group: rbacv1.GroupName, Version: "*", Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if !posts(target) {
		return []authorizationv1.ResourceAttributes{named}
	}
	unnamed := named
	unnamed.Name = ""
	if target.Strategy == workv1.UpdateStrategyTypeCreateOnly {
		return []authorizationv1.ResourceAttributes{unnamed}
	}
	return []authorizationv1.ResourceAttributes{unnamed, named}
}

// fixed reports whether the manifest determines the rules of a role, whatever the role on the cluster
// contains. bound is true if the question is what a binding to the role grants: a role that is only
// created may exist with other rules.
func (g *grant) fixed(bound bool) bool {
	if g.strategy == workv1.UpdateStrategyTypeCreateOnly {
		return !bound
	}
	return g.aggregated || g.given
}

func (g *grant) offers() []rbacv1.PolicyRule {
	if g.aggregated {
		return rbac.Everything
	}
	return g.rules
}

type content struct {
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
}

func contentOf(object *unstructured.Unstructured) (c content, err error) {
	if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c); err != nil {
		err = fmt.Errorf("the rules or references cannot be read: %w", err)
	}
	return c, err
}

func (c content) aggregates() bool {
	return c.AggregationRule != nil && len(c.AggregationRule.ClusterRoleSelectors) > 0
}
