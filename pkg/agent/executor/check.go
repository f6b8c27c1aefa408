package executor

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

type check struct {
	*Executors
	*account
	// fresh is true if no decision from before the check is used.
	fresh bool

	decisions map[authorizationv1.ResourceAttributes]decision
	// delivered contains the roles that the ManifestWork delivers.
	delivered map[rbac.Key]*grant
	// held contains the rules of the executor by namespace, as far as they are known.
	held map[string][]rbacv1.PolicyRule
	// live contains the roles on the cluster that the check has read. A role that does not exist is nil.
	live map[rbac.Key]*content
}

// judge returns the messages for all targets for which the executor lacks permissions, by ordinal.
func (c *check) judge(ctx context.Context, targets []work.Target) (map[int]string, error) {
	c.delivered, c.held, c.live = map[rbac.Key]*grant{}, map[string][]rbacv1.PolicyRule{}, map[rbac.Key]*content{}
	grants := make([]*grant, len(targets))
	unreadable := make([]error, len(targets))
	for i, target := range targets {
		grants[i], unreadable[i] = grantOf(target)
		if g := grants[i]; g != nil && g.ref == nil {
			c.delivered[g.key] = g
		}
	}
	if err := c.ask(ctx, targets, grants); err != nil {
		return nil, err
	}
	denied := map[int]string{}
	for i, target := range targets {
		s, err := c.shortfall(ctx, target, grants[i])
		if err != nil {
			return nil, err
		}
		s.unreadable = unreadable[i]
		if !s.empty() {
			denied[target.Ordinal] = s.message(c.name)
		}
	}
	return denied, nil
}

// ask asks for decisions on all requests of the ManifestWork.
func (c *check) ask(ctx context.Context, targets []work.Target, grants []*grant) (err error) {
	var requests []authorizationv1.ResourceAttributes
	for i, target := range targets {
		requests = append(requests, requestsOf(target)...)
		if grants[i] != nil {
			requests = append(requests, grants[i].requests...)
		}
	}
	c.decisions, err = c.reviews.decide(ctx, c.account, userName(c.name), requests, c.fresh)
	return err
}

// shortfall returns the permissions that the executor lacks for a target. g is its grant, or nil.
func (c *check) shortfall(ctx context.Context, target work.Target, g *grant) (*shortfall, error) {
	s := &shortfall{target: target}
	for _, request := range requestsOf(target) {
		if decision := c.decisions[request]; !decision.allowed {
			s.requests = append(s.requests, request)
			s.reasons = append(s.reasons, decision.reason)
		}
	}
	if g == nil || c.allowed(g.requests) {
		return s, nil
	}
	if len(s.requests) > 0 && c.looksUp(g) {
		// Without permission to write the object, the message must not disclose the rules of roles
		// on the cluster.
		s.grant = &grantShortfall{grant: g, undisclosed: true}
		return s, nil
	}
	var err error
	s.grant, err = c.judgeGrant(ctx, g, len(s.requests) == 0)
	return s, err
}

func (c *check) allowed(requests []authorizationv1.ResourceAttributes) bool {
	return !slices.ContainsFunc(requests, func(request authorizationv1.ResourceAttributes) bool { return !c.decisions[request].allowed })
}

// judgeGrant compares the permissions that a role or binding grants with the permissions of the
// executor. It returns nil if the executor holds all of them. applicable is true if no other check
// prevents the executor from writing the object.
func (c *check) judgeGrant(ctx context.Context, g *grant, applicable bool) (*grantShortfall, error) {
	held, err := c.rulesIn(ctx, g.namespace)
	if err != nil {
		return nil, err
	}
	missing := &grantShortfall{grant: g, aggregated: g.aggregated}
	wanted, known, err := c.wanted(ctx, g)
	if err != nil {
		return nil, err
	}
	if !known {
		missing.unknown = true
		return missing, nil
	}
	if rbac.CoversEverything(held) {
		return nil, nil
	}
	rules, compared := rbac.NewBudget().Uncovered(held, wanted)
	if !compared {
		missing.tooMany = true
		return missing, nil
	}
	if len(rules) > 0 {
		missing.rules = rbac.Compact(rules)
		return missing, nil
	}
	if !applicable || g.ref != nil || g.key.Kind != rbac.KindClusterRole || g.strategy == workv1.UpdateStrategyTypeCreateOnly {
		return nil, nil
	}
	// A change of a role that currently aggregates rules requires all rules that it may have
	// aggregated.
	live, err := c.role(ctx, g.key)
	if err != nil || live == nil || !live.aggregates() {
		return nil, err
	}
	missing.aggregated = true
	return missing, nil
}

// source returns the role of the ManifestWork that a grant concerns, or nil if the ManifestWork does
// not contain it.
func (c *check) source(g *grant) *grant {
	if g.ref == nil {
		return g
	}
	return c.delivered[g.key]
}

// looksUp reports whether the check of a grant requires the rules of a role on the cluster.
func (c *check) looksUp(g *grant) bool {
	source := c.source(g)
	return source == nil || !source.fixed(g.ref != nil)
}

// wanted returns the rules that the executor must hold to write a role or a binding, or false if the
// role of a binding does not exist.
func (c *check) wanted(ctx context.Context, g *grant) ([]rbacv1.PolicyRule, bool, error) {
	if g.key.Kind == rbac.KindRole && g.namespace == "" {
		return nil, false, nil // a ClusterRoleBinding cannot refer to a Role
	}
	source := c.source(g)
	if !c.looksUp(g) {
		return source.offers(), true, nil
	}
	live, err := c.role(ctx, g.key)
	switch {
	case err != nil:
		return nil, false, err
	case live != nil:
		return live.Rules, true, nil
	case source != nil:
		return source.offers(), true, nil
	}
	return nil, false, nil
}

// role returns a role on the cluster, or nil if it does not exist. It reads each role once, because a
// ManifestWork may contain many bindings to the same role.
func (c *check) role(ctx context.Context, key rbac.Key) (*content, error) {
	if known, read := c.live[key]; read {
		return known, nil
	}
	resource := rbacv1.SchemeGroupVersion.WithResource(roles)
	if key.Kind == rbac.KindClusterRole {
		resource = rbacv1.SchemeGroupVersion.WithResource(clusterRoles)
	}
	live, err := c.config.Own.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.live[key] = nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	role, err := contentOf(live)
	if err != nil {
		return nil, err
	}
	c.live[key] = &role
	return &role, nil
}

// everywhere is the namespace of which the executor's rules are its cluster-wide rules. It is not a
// valid name, so no RoleBinding can be in it. A SelfSubjectRulesReview requires a namespace.
const everywhere = "*"

// rulesIn returns the rules that the executor holds in a namespace, or cluster-wide. The API server
// compares a role with the same rules.
func (c *check) rulesIn(ctx context.Context, namespace string) ([]rbacv1.PolicyRule, error) {
	if held, known := c.held[namespace]; known {
		return held, nil
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	if namespace == "" {
		review.Spec.Namespace = everywhere
	}
	review, err := c.rules.Create(ctx, review, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return nil, &work.Refusal{Message: ownRulesText(c.name, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading its rules: %w", err)
	}
	var held []rbacv1.PolicyRule
	for _, rule := range review.Status.ResourceRules {
		held = append(held, rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
	}
	for _, rule := range review.Status.NonResourceRules {
		held = append(held, rbacv1.PolicyRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
	}
	c.held[namespace] = held
	return held, nil
}
