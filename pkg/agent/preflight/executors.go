package preflight

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

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

// Mode is the identity with which ManifestWorks that name an executor act.
type Mode string

const (
	// Impersonate makes ManifestWorks act as the executor. The agent requires the verb impersonate
	// on its ServiceAccount.
	Impersonate Mode = "Impersonate"
	// Review makes ManifestWorks act as the agent, after a check that the executor is allowed the
	// same requests.
	Review Mode = "Review"
)

// Modes returns all modes. The first is the default.
func Modes() []Mode { return []Mode{Impersonate, Review} }

// maxAllowedAge is the maximum age of a decision that allows a ManifestWork to act. Changes of RBAC
// are watched, but other authorizers cannot be watched.
const maxAllowedAge = 10 * time.Minute

// Reviewer checks the permissions of ServiceAccounts on the managed cluster. See
// accessreview.Reviewer, which implements it.
type Reviewer interface {
	Run(ctx context.Context, changed func(account types.NamespacedName))
	Review(ctx context.Context, account types.NamespacedName, requests []accessreview.Request, maxAge time.Duration) ([]accessreview.Decision, error)
	Rules(ctx context.Context, account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error)
	RoleRules(ctx context.Context, account types.NamespacedName, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool, error)
	Forget(account types.NamespacedName)
}

// Config configures Executors.
type Config struct {
	// Managed is the agent's configuration for the managed cluster. Clients that
	// impersonate share its connections and its rate limiter.
	Managed *rest.Config
	// Own is the client that acts as the agent.
	Own dynamic.Interface
	// Reviewer checks the permissions of executors.
	Reviewer Reviewer
	// Mode defaults to Impersonate.
	Mode Mode
}

// Executors selects the clients with which ManifestWorks act. It may be used concurrently.
type Executors struct {
	own      dynamic.Interface
	reviewer Reviewer
	mode     Mode
	clients  *clients
	// aggregated caches for each group version whether an aggregated API server serves it.
	aggregated *groupVersions
}

var _ work.Executors = (*Executors)(nil)

// New returns Executors, or an error if the configuration is incomplete. It sends no request.
func New(config Config) (*Executors, error) {
	if config.Managed == nil || config.Own == nil || config.Reviewer == nil {
		return nil, errors.New("executors require Managed, Own and Reviewer")
	}
	if config.Mode == "" {
		config.Mode = Impersonate
	}
	if !slices.Contains(Modes(), config.Mode) {
		return nil, fmt.Errorf("unsupported executor mode %q: supported modes: %v", config.Mode, Modes())
	}
	return &Executors{own: config.Own, reviewer: config.Reviewer, mode: config.Mode, clients: newClients(config.Managed),
		aggregated: &groupVersions{own: config.Own}}, nil
}

// Run implements work.Executors.
func (e *Executors) Run(ctx context.Context, changed func(executor types.NamespacedName)) {
	e.reviewer.Run(ctx, changed)
}

// Forget removes the state of an executor that no ManifestWork names any more.
func (e *Executors) Forget(executor types.NamespacedName) {
	e.clients.forget(executor)
	e.reviewer.Forget(executor)
}

// Admit implements work.Executors. It rejects a ManifestWork if its executor lacks permissions for
// any of the objects, or if the agent cannot check them.
func (e *Executors) Admit(ctx context.Context, request work.AdmitRequest) (dynamic.Interface, error) {
	executor, named := work.ExecutorOf(request.Work)
	if !named {
		return e.own, nil
	}
	if _, _, err := serviceaccount.SplitUsername(accessreview.UserName(executor)); err != nil {
		return nil, &work.Refusal{Message: fmt.Sprintf("not applied: spec.executor names %q, which is not a valid ServiceAccount", executor)}
	}
	p := &pass{Executors: e, executor: executor, acting: request.Acting}
	denied, err := p.judge(ctx, request.Targets)
	if forbidden(err) {
		return nil, &work.Refusal{Message: agentText(executor, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", executor, err)
	}
	if len(denied) > 0 {
		klog.FromContext(ctx).V(2).Info("The executor lacks permissions to apply the ManifestWork", "executor", executor.String(), "denied", len(denied))
		return nil, &work.Refusal{
			Message: fmt.Sprintf("not applied: the executor %s lacks permissions for %d of %d manifests; a ManifestWork is applied completely or not at all",
				executor, len(denied), len(request.Work.Spec.Workload.Manifests)),
			Manifests: denied,
		}
	}
	if e.mode == Review {
		return e.own, nil
	}
	client, err := e.clients.of(executor)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the executor %s: %w", executor, err)
	}
	return client, nil
}

// forbidden reports whether the agent lacks a permission. errors.As does not inspect aggregates
// that filter their errors.
func forbidden(err error) bool {
	var several utilerrors.Aggregate
	return apierrors.IsForbidden(err) || errors.As(err, &several) && slices.ContainsFunc(several.Errors(), forbidden)
}
