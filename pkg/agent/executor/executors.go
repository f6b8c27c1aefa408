package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

// Mode is how works act that name an executor.
type Mode string

const (
	// Impersonate has them act as the executor. The agent needs the verb impersonate
	// on its ServiceAccount.
	Impersonate Mode = "Impersonate"
	// Review has them act as the agent, once the managed cluster has said that the
	// executor may do the same.
	Review Mode = "Review"
)

// Modes are all modes, the default first.
func Modes() []Mode { return []Mode{Impersonate, Review} }

// maxAllowedAge is how old an answer may be that lets a work act. Changes of RBAC
// are noticed when they happen; this is for authorizers that nobody can watch.
const maxAllowedAge = 10 * time.Minute

// Reviewer tells what ServiceAccounts may do on the managed cluster. It is
// implemented by *access.Reviewer, which documents the methods.
type Reviewer interface {
	Run(ctx context.Context, changed func(account types.NamespacedName))
	Review(ctx context.Context, account types.NamespacedName, requests []access.Request, maxAge time.Duration) ([]access.Decision, error)
	Rules(ctx context.Context, account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error)
	RoleRules(ctx context.Context, account types.NamespacedName, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool, error)
	Forget(account types.NamespacedName)
}

// Config is what executors are made of.
type Config struct {
	// Managed is how the agent reaches the managed cluster. Clients that impersonate
	// share its connections and its rate limiter.
	Managed *rest.Config
	// Own acts as the agent itself.
	Own dynamic.Interface
	// Reviewer tells what executors may do.
	Reviewer Reviewer
	// Mode is Impersonate if empty.
	Mode Mode
}

// Executors decides with whose permissions works act. It is safe for concurrent use.
type Executors struct {
	own      dynamic.Interface
	reviewer Reviewer
	mode     Mode
	clients  *clients
	// aggregated reports which kinds aggregated API servers serve.
	aggregated *groupVersions
}

var _ work.Executors = (*Executors)(nil)

// New returns executors, or an error if the configuration is not complete. It
// makes no request.
func New(config Config) (*Executors, error) {
	if config.Managed == nil || config.Own == nil || config.Reviewer == nil {
		return nil, errors.New("executors need the managed cluster, a client of the agent and a reviewer")
	}
	if config.Mode == "" {
		config.Mode = Impersonate
	}
	if !slices.Contains(Modes(), config.Mode) {
		return nil, fmt.Errorf("unknown mode %q of executors, known are %v", config.Mode, Modes())
	}
	return &Executors{own: config.Own, reviewer: config.Reviewer, mode: config.Mode, clients: newClients(config.Managed),
		aggregated: &groupVersions{own: config.Own}}, nil
}

// Run implements work.Executors.
func (e *Executors) Run(ctx context.Context, changed func(executor types.NamespacedName)) {
	e.reviewer.Run(ctx, changed)
}

// Forget drops what is known about an executor, which no work names any more.
func (e *Executors) Forget(executor types.NamespacedName) {
	e.clients.forget(executor)
	e.reviewer.Forget(executor)
}

// Admit implements work.Executors. It refuses a work if its executor may not do
// all that the objects of the work take, or if the agent cannot find out.
func (e *Executors) Admit(ctx context.Context, request work.AdmitRequest) (dynamic.Interface, error) {
	executor, named := work.ExecutorOf(request.Work)
	if !named {
		return e.own, nil
	}
	if _, _, err := serviceaccount.SplitUsername(access.UserName(executor)); err != nil {
		return nil, &work.Refusal{Message: fmt.Sprintf("not applied: the work names an executor %q that cannot be the name of a ServiceAccount", executor)}
	}
	p := &pass{Executors: e, executor: executor, acting: request.Acting}
	denied, err := p.judge(ctx, request.Targets)
	if forbidden(err) {
		return nil, &work.Refusal{Message: agentLacks(executor, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", executor, err)
	}
	if len(denied) > 0 {
		klog.FromContext(ctx).V(2).Info("The executor may not apply the work", "executor", executor.String(), "denied", len(denied))
		return nil, &work.Refusal{
			Message: fmt.Sprintf("not applied: %d of %d manifests of the work are not allowed to %s; a work is applied as a whole or not at all",
				len(denied), len(request.Work.Spec.Workload.Manifests), executor),
			Manifests: denied,
		}
	}
	if e.mode == Review {
		return e.own, nil
	}
	client, err := e.clients.of(executor)
	if err != nil {
		return nil, fmt.Errorf("client of the executor %s: %w", executor, err)
	}
	return client, nil
}

// forbidden is whether the agent lacks a right. Aggregates hide what they consist of.
func forbidden(err error) bool {
	var several utilerrors.Aggregate
	return apierrors.IsForbidden(err) || errors.As(err, &several) && slices.ContainsFunc(several.Errors(), forbidden)
}
