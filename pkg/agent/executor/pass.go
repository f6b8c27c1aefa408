package executor

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// pass judges one work once.
type pass struct {
	*Executors
	executor types.NamespacedName
	acting   bool

	decisions map[access.Request]access.Decision
	// delivered are the roles that the work itself delivers.
	delivered map[roleKey]*grant
	// held are the rules of the executor, by namespace.
	held map[string][]rbacv1.PolicyRule
}

// judge returns, for each target that the executor may not apply, by its ordinal,
// what is missing.
func (p *pass) judge(ctx context.Context, targets []work.Target) (map[int]string, error) {
	p.delivered, p.held = map[roleKey]*grant{}, map[string][]rbacv1.PolicyRule{}
	grants := make([]*grant, len(targets))
	unreadable := make([]error, len(targets))
	// asked is what the API server asks of the caller, in mode Review.
	asked := make([][]access.Request, len(targets))
	for i, target := range targets {
		grants[i], unreadable[i] = grantOf(p.mode, target)
		if p.mode == Review && unreadable[i] == nil {
			asked[i], unreadable[i] = callerRequests(target)
		}
		if g := grants[i]; g != nil && g.ref == nil {
			p.delivered[roleKey{target.Namespace, target.Name}] = g
		}
	}
	if err := p.ask(ctx, targets, grants, asked); err != nil {
		return nil, err
	}
	denied := map[int]string{}
	for i, target := range targets {
		s := &shortfall{target: target, unreadable: unreadable[i]}
		for _, request := range asked[i] {
			if !p.decisions[request].Allowed {
				s.asked = append(s.asked, request)
			}
		}
		var err error
		if s.caller, err = p.byCaller(ctx, target); err != nil {
			if s.caller = untold(err); s.caller == "" {
				return nil, err
			}
		}
		for _, request := range requestsOf(p.mode, target) {
			if decision := p.decisions[request]; !decision.Allowed {
				s.requests = append(s.requests, request)
				s.reasons = append(s.reasons, decision.Reason)
			}
		}
		if g := grants[i]; g != nil && !p.allowed(g.requests) {
			if len(s.requests) > 0 && p.looksUp(g) {
				// Who may not write it is not told what roles of the cluster grant.
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

// ask has all requests of the work reviewed, each once.
func (p *pass) ask(ctx context.Context, targets []work.Target, grants []*grant, asked [][]access.Request) error {
	var requests []access.Request
	p.decisions = map[access.Request]access.Decision{}
	add := func(more []access.Request) {
		for _, request := range more {
			if _, known := p.decisions[request]; !known {
				p.decisions[request] = access.Decision{}
				requests = append(requests, request)
			}
		}
	}
	for i, target := range targets {
		add(requestsOf(p.mode, target))
		add(asked[i])
		if grants[i] != nil {
			add(grants[i].requests)
		}
	}
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

func (p *pass) allowed(requests []access.Request) bool {
	for _, request := range requests {
		if !p.decisions[request].Allowed {
			return false
		}
	}
	return true
}

// looksUp is whether judging a grant takes what a role of the cluster grants.
func (p *pass) looksUp(g *grant) bool {
	if g.ref == nil {
		return g.keeps()
	}
	delivered := p.delivered[g.role()]
	return delivered == nil || !delivered.replaces(p.mode)
}

// judgeGrant compares what a role or binding grants with what the executor holds.
// It returns nil if the executor holds all of it. applicable is whether it may
// write the object otherwise.
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
			kind := "ClusterRole"
			if g.namespace != "" {
				kind = "Role"
			}
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: target.Name}
			if existing, _, err = p.reviewer.RoleRules(ctx, p.executor, ref, g.namespace); err != nil {
				return nil, fmt.Errorf("rules of the %s %s: %w", kind, target.Name, err)
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
	var ok bool
	if missing.rules, ok = uncovered(held, wanted); !ok {
		missing.tooMany = true
		return missing, nil
	}
	if len(missing.rules) > 0 {
		return missing, nil
	}
	if !applicable || g.ref != nil {
		return nil, nil
	}
	// A role that collects until it is written can only be changed by who holds
	// all that it may have collected.
	if short, _ := uncovered(held, everything); len(short) == 0 {
		return nil, nil
	}
	if missing.aggregated, err = p.collects(ctx, target); err != nil || !missing.aggregated {
		return nil, err
	}
	return missing, nil
}

// rules are what the executor holds where a grant is made.
func (p *pass) rules(ctx context.Context, namespace string) ([]rbacv1.PolicyRule, error) {
	if held, known := p.held[namespace]; known {
		return held, nil
	}
	held, err := p.reviewer.Rules(ctx, p.executor, namespace)
	if err != nil {
		return nil, fmt.Errorf("its rules: %w", err)
	}
	p.held[namespace] = held
	return held, nil
}

// bound are the rules that a binding gives; false if its role does not exist.
func (p *pass) bound(ctx context.Context, g *grant) ([]rbacv1.PolicyRule, bool, error) {
	if g.ref.Kind == "Role" && g.namespace == "" {
		return nil, false, nil
	}
	delivered := p.delivered[g.role()]
	if delivered != nil && delivered.replaces(p.mode) {
		rules, known := bound(p.mode, delivered, nil, false)
		return rules, known, nil
	}
	existing, exists, err := p.reviewer.RoleRules(ctx, p.executor, *g.ref, g.namespace)
	if err != nil {
		return nil, false, fmt.Errorf("rules of the %s %s: %w", g.ref.Kind, g.ref.Name, err)
	}
	rules, known := bound(p.mode, delivered, existing, exists)
	return rules, known, nil
}

// collects reports whether applying the target changes a ClusterRole of the
// cluster that collects the rules of others. That takes a request, so it is asked
// only by a pass that acts.
func (p *pass) collects(ctx context.Context, target work.Target) (bool, error) {
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
