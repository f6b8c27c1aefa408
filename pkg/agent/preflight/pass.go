package preflight

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// pass checks one ManifestWork once.
type pass struct {
	*Executors
	executor types.NamespacedName
	acting   bool

	decisions map[accessreview.Request]accessreview.Decision
	// delivered contains the roles that the ManifestWork delivers.
	delivered map[rbac.Key]*grant
	// held caches the rules of the executor by namespace.
	held map[string][]rbacv1.PolicyRule
}

// judge returns the messages for all targets for which the executor lacks permissions, by ordinal.
func (p *pass) judge(ctx context.Context, targets []work.Target) (map[int]string, error) {
	p.delivered, p.held = map[rbac.Key]*grant{}, map[string][]rbacv1.PolicyRule{}
	grants := make([]*grant, len(targets))
	unreadable := make([]error, len(targets))
	// required are the requests that the API server authorizes for the caller, in mode Review.
	required := make([][]accessreview.Request, len(targets))
	for i, target := range targets {
		grants[i], unreadable[i] = grantOf(p.mode, target)
		if p.mode == Review && unreadable[i] == nil {
			required[i], unreadable[i] = callerRequests(target)
		}
		if g := grants[i]; g != nil && g.ref == nil {
			p.delivered[g.key] = g
		}
	}
	if err := p.ask(ctx, targets, grants, required); err != nil {
		return nil, err
	}
	if err := p.askNamed(ctx, targets); err != nil {
		return nil, err
	}
	denied := map[int]string{}
	for i, target := range targets {
		s := &shortfall{target: target, unreadable: unreadable[i]}
		for _, request := range required[i] {
			if !p.decisions[request].Allowed {
				s.required = append(s.required, request)
			}
		}
		var err error
		if s.caller, err = p.byCaller(ctx, target); err != nil {
			if s.caller = apiServiceText(err); s.caller == "" {
				return nil, err
			}
		}
		for _, request := range requestsOf(p.mode, target) {
			if decision := p.decisions[request]; !decision.Allowed {
				s.requests = append(s.requests, request)
				s.reasons = append(s.reasons, decision.Reason)
				s.named = s.named || isUnnamed(request) && p.decisions[named(request, target)].Allowed
			}
		}
		if g := grants[i]; g != nil && !p.allowed(g.requests) {
			if len(s.requests) > 0 && p.looksUp(g) {
				// Without permission to write the object, the message must not disclose the
				// rules of roles on the cluster.
				s.grant = &grantShortfall{grant: g, undisclosed: true}
			} else if s.grant, err = p.judgeGrant(ctx, target, g, len(s.requests) == 0); err != nil {
				return nil, err
			}
		}
		if !s.empty() {
			denied[target.Ordinal] = s.message(p.executor)
		}
	}
	return denied, nil
}

// ask reviews all requests of the ManifestWork, each once.
func (p *pass) ask(ctx context.Context, targets []work.Target, grants []*grant, required [][]accessreview.Request) error {
	var requests []accessreview.Request
	p.decisions = map[accessreview.Request]accessreview.Decision{}
	add := func(more []accessreview.Request) {
		for _, request := range more {
			if _, known := p.decisions[request]; !known {
				p.decisions[request] = accessreview.Decision{}
				requests = append(requests, request)
			}
		}
	}
	for i, target := range targets {
		add(requestsOf(p.mode, target))
		add(required[i])
		if grants[i] != nil {
			add(grants[i].requests)
		}
	}
	return p.review(ctx, requests)
}

// askNamed reviews the denied requests that create an object, with its name. If one is allowed, a rule with
// resourceNames, which has no effect, is the cause of the denial.
func (p *pass) askNamed(ctx context.Context, targets []work.Target) error {
	var requests []accessreview.Request
	for _, target := range targets {
		for _, request := range requestsOf(p.mode, target) {
			if isUnnamed(request) && !p.decisions[request].Allowed {
				requests = append(requests, named(request, target))
			}
		}
	}
	return p.review(ctx, requests)
}

// isUnnamed reports whether a request creates an object by POST.
func isUnnamed(request accessreview.Request) bool {
	return request.Verb == "create" && request.Name == ""
}

func named(request accessreview.Request, target work.Target) accessreview.Request {
	request.Name = target.Name
	return request
}

// review stores the decisions about requests.
func (p *pass) review(ctx context.Context, requests []accessreview.Request) error {
	if len(requests) == 0 {
		return nil
	}
	var maxAge time.Duration
	if p.acting {
		maxAge = maxAllowedAge
	}
	decisions, err := p.reviewer.Review(ctx, p.executor, requests, maxAge)
	if err != nil {
		return err
	}
	if len(decisions) != len(requests) {
		return fmt.Errorf("%d answers to %d access reviews", len(decisions), len(requests))
	}
	for i, request := range requests {
		p.decisions[request] = decisions[i]
	}
	return nil
}

func (p *pass) allowed(requests []accessreview.Request) bool {
	for _, request := range requests {
		if !p.decisions[request].Allowed {
			return false
		}
	}
	return true
}

// looksUp reports whether the check of a grant requires the rules of a role on the cluster.
func (p *pass) looksUp(g *grant) bool {
	if g.ref == nil {
		return g.keeps()
	}
	delivered := p.delivered[g.key]
	return delivered == nil || !delivered.replaces(p.mode)
}

// judgeGrant compares the permissions that a role or binding grants with the permissions of the
// executor. It returns nil if the executor holds all of them. applicable is true if no other check
// prevents the executor from writing the object.
func (p *pass) judgeGrant(ctx context.Context, target work.Target, g *grant, applicable bool) (*grantShortfall, error) {
	held, err := p.rules(ctx, g.namespace)
	if err != nil {
		return nil, err
	}
	missing := &grantShortfall{grant: g}
	var wanted []rbacv1.PolicyRule
	if g.ref == nil {
		missing.aggregated = g.aggregated
		var existing []rbacv1.PolicyRule
		if g.keeps() {
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: g.key.Kind, Name: g.key.Name}
			if existing, _, err = p.reviewer.RoleRules(ctx, p.executor, ref, g.namespace); err != nil {
				return nil, fmt.Errorf("rules of %s: %w", g.key, err)
			}
		}
		wanted = g.wanted(existing)
	} else {
		var known bool
		if wanted, known, err = p.bound(ctx, g); err != nil {
			return nil, err
		}
		if !known {
			missing.unknown = true
			return missing, nil
		}
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
	if !applicable || g.ref != nil {
		return nil, nil
	}
	// A change of a role that currently aggregates rules requires all rules that it may have
	// aggregated.
	if missing.aggregated, err = p.aggregates(ctx, target); err != nil || !missing.aggregated {
		return nil, err
	}
	return missing, nil
}

// rules returns the rules that the executor holds in a namespace, or cluster-wide.
func (p *pass) rules(ctx context.Context, namespace string) ([]rbacv1.PolicyRule, error) {
	if held, known := p.held[namespace]; known {
		return held, nil
	}
	held, err := p.reviewer.Rules(ctx, p.executor, namespace)
	if err != nil {
		return nil, fmt.Errorf("reading its rules: %w", err)
	}
	p.held[namespace] = held
	return held, nil
}

// bound returns the rules that a binding grants, or false if its role does not exist.
func (p *pass) bound(ctx context.Context, g *grant) ([]rbacv1.PolicyRule, bool, error) {
	if g.key.Kind == rbac.KindRole && g.namespace == "" {
		return nil, false, nil
	}
	delivered := p.delivered[g.key]
	if delivered != nil && delivered.replaces(p.mode) {
		rules, known := bound(p.mode, delivered, nil, false)
		return rules, known, nil
	}
	existing, exists, err := p.reviewer.RoleRules(ctx, p.executor, *g.ref, g.namespace)
	if err != nil {
		return nil, false, fmt.Errorf("rules of %s: %w", g.key, err)
	}
	rules, known := bound(p.mode, delivered, existing, exists)
	return rules, known, nil
}

// aggregates reports whether applying the target changes a ClusterRole on the cluster that
// aggregates the rules of other roles. It sends a request, so it does that only if the pass acts.
func (p *pass) aggregates(ctx context.Context, target work.Target) (bool, error) {
	if !p.acting || target.Resource.Resource != clusterRoles || target.Strategy == workv1.UpdateStrategyTypeCreateOnly {
		return false, nil
	}
	live, err := p.own.Resource(target.Resource).Get(ctx, target.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ClusterRole %s: %w", target.Name, err)
	}
	selectors, _, _ := unstructured.NestedSlice(live.Object, "aggregationRule", "clusterRoleSelectors")
	return len(selectors) > 0, nil
}
