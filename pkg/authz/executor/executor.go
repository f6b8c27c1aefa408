// Package executor asks whether a caller may have a ManifestWork act as its executor,
// a ServiceAccount of the managed cluster. Nothing else builds the attributes of this
// question.
package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

const (
	resource = "manifestworks"
	verb     = "execute-as"
	version  = "v1"
)

// Bindings reads ManagedServiceAccountBindings.
type Bindings interface {
	// Bindings returns those of a namespace as they are stored now, so that one that
	// has been deleted allows nothing any more.
	Bindings(ctx context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error)
}

// Accounts knows what ManagedServiceAccounts are on managed clusters.
type Accounts interface {
	// ServiceAccount returns the ServiceAccount that an account of a cluster is there.
	// It is not known of an account that does not exist, that is being deleted, or
	// that no agent has reported.
	ServiceAccount(ctx context.Context, namespace, account string) (on types.NamespacedName, known bool, err error)
}

// Options are what a Checker asks.
type Options struct {
	// Authorizer tells what callers may do on the hub.
	Authorizer authorizer.Authorizer
	// Server is who this server is on the hub. Its own works are judged by that.
	Server func(context.Context) (user.Info, error)
	// NilExecutor says what becomes of works without executor.
	NilExecutor NilExecutor
	// Bindings let users who may not execute-as; nil for a hub without any.
	Bindings Bindings
	// Accounts tells what the accounts of bindings are; needed where there are Bindings.
	Accounts Accounts
}

// Checker judges writes of ManifestWorks by their executor.
type Checker struct {
	options Options
}

// NewChecker returns a Checker.
func NewChecker(options Options) *Checker { return &Checker{options: options} }

// Check tells why the caller may not give a work of a cluster its spec; nil if it
// may. Each of the executors is judged: that of the spec, nil if it has none, and one
// that the spec takes away. The error is a Status: Forbidden with the rule that is
// missing, or InternalError for what could not be asked.
func (c *Checker) Check(ctx context.Context, namespace, name string, executors ...*work.ManifestWorkExecutor) error {
	var all verdict
	for _, executor := range executors {
		v, err := c.check(ctx, namespace, name, executor)
		if err != nil {
			v.record(ctx)
			return err
		}
		all = all.and(v)
	}
	// An audit annotation that is set stays as it is, so there is one for all of them.
	all.record(ctx)
	return nil
}

// check judges one executor. What could not be asked has no verdict.
func (c *Checker) check(ctx context.Context, namespace, name string, executor *work.ManifestWorkExecutor) (verdict, error) {
	q := question{namespace: namespace, work: name}
	switch {
	case executor == nil && c.options.NilExecutor == Deny:
		return verdict{forbid, "spec.executor is required on this hub"},
			q.refuse(errors.New("spec.executor is required on this hub (--nil-executor=Deny)"))
	case executor == nil && c.options.NilExecutor == Check:
		q.name, q.agent = AgentExecutor, true
	case executor == nil:
		return verdict{}, nil
	case executor.Subject.ServiceAccount == nil:
		const why = "spec.executor names no ServiceAccount"
		return verdict{forbid, why}, q.refuse(errors.New(why))
	default:
		account := executor.Subject.ServiceAccount
		q.executor = types.NamespacedName{Namespace: account.Namespace, Name: account.Name}
		q.name = serviceaccount.MakeUsername(account.Namespace, account.Name)
	}

	caller, err := c.caller(ctx)
	if err != nil {
		return verdict{}, apierrors.NewInternalError(err)
	}
	q.caller = caller
	return c.judge(ctx, q)
}

// ResourceAttributes are what it takes to have works of a cluster act as the executor
// of a name. An empty namespace is that of every cluster.
func ResourceAttributes(namespace, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: verb, Group: work.GroupName, Version: version, Resource: resource, Namespace: namespace, Name: name,
	}
}

// question is whether a caller may have a work act as an executor.
type question struct {
	caller          user.Info
	namespace, work string
	executor        types.NamespacedName
	// agent says that the work has no executor: it acts as the agent.
	agent bool
	// name is what the hub's RBAC knows the executor by.
	name string
	// unhelpful tells of a binding that names the caller and does not help; "" if there is none.
	unhelpful string
}

func (c *Checker) judge(ctx context.Context, q question) (verdict, error) {
	asked := ResourceAttributes(q.namespace, q.name)
	decision, reason, err := c.options.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            q.caller,
		Verb:            asked.Verb,
		APIGroup:        asked.Group,
		APIVersion:      asked.Version,
		Resource:        asked.Resource,
		Namespace:       asked.Namespace,
		Name:            asked.Name,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return verdict{allow, reason}, nil
	}
	if err != nil {
		return verdict{}, apierrors.NewInternalError(fmt.Errorf("asking whether %q may %s: %w", q.caller.GetName(), q.what(), err))
	}
	// What the hub denies outright, rather than just not allow, no binding allows.
	if decision != authorizer.DecisionDeny && !q.agent && c.options.Bindings != nil {
		binding, why, err := c.bound(ctx, q.caller, q.namespace, q.executor)
		if err != nil {
			return verdict{}, apierrors.NewInternalError(fmt.Errorf("asking whether a ManagedServiceAccountBinding lets %q %s: %w", q.caller.GetName(), q.what(), err))
		}
		if binding != "" {
			return verdict{allow, fmt.Sprintf("ManagedServiceAccountBinding %q", q.namespace+"/"+binding)}, nil
		}
		q.unhelpful = why
	}
	return verdict{forbid, fmt.Sprintf("%q may not %s", q.caller.GetName(), q.what())}, q.refuse(c.refusal(ctx, q))
}

// caller is who writes. What this server writes on its own behalf comes through its
// loopback client, and is judged like what anybody writes.
func (c *Checker) caller(ctx context.Context) (user.Info, error) {
	caller, known := request.UserFrom(ctx)
	if !known {
		return nil, errors.New("the request has no user")
	}
	if caller.GetName() != user.APIServerUser || !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return caller, nil
	}
	if c.options.Server == nil {
		return nil, errors.New("this server does not know who it is on the hub")
	}
	server, err := c.options.Server(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the hub who this server is: %w", err)
	}
	return server, nil
}
