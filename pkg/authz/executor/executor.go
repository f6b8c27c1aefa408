// Package executor checks whether a caller may make a ServiceAccount of a managed
// cluster the executor of a ManifestWork.
package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

const resource = "manifestworks"

// Checker checks the executors of ManifestWorks that are written.
type Checker struct {
	// Authorizer decides about access to the hub.
	Authorizer authorizer.Authorizer
	// Server returns the identity of this server on the hub, for ManifestWorks that the server writes itself.
	Server func(context.Context) (user.Info, error)
	// NilExecutor is the policy for ManifestWorks without executor.
	NilExecutor NilExecutor
	// Bindings returns the stored ManagedServiceAccountBindings of a namespace without a cache, so that a deleted binding
	// allows nothing. They allow users without execute-as to use executors. It is nil on a hub without such bindings.
	Bindings func(ctx context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error)
	// Accounts returns the ServiceAccount of a ManagedServiceAccount on its cluster. known is false if the account does not
	// exist, is being deleted, or no agent has reported it. It is required if Bindings is set.
	Accounts func(ctx context.Context, namespace, account string) (on types.NamespacedName, known bool, err error)
}

// Check returns nil if the caller may use the executor of a ManifestWork, which is nil if
// the spec has none, and the former executors, which the update replaces. Otherwise it
// returns a Forbidden error that contains the missing rule, or an InternalError.
func (c *Checker) Check(ctx context.Context, namespace, name string, executor *workv1.ManifestWorkExecutor, former ...*workv1.ManifestWorkExecutor) error {
	q := question{namespace: namespace, work: name}
	all, err := c.check(ctx, q, executor)
	q.former = true
	for _, replaced := range former {
		if err != nil {
			break
		}
		before := all
		if all, err = c.check(ctx, q, replaced); err == nil {
			all = before.and(all)
		}
	}
	// An audit annotation cannot be overwritten, so all executors share one.
	if all.decision != "" {
		audit.AddAuditAnnotations(ctx, decisionAnnotation, all.decision, reasonAnnotation, all.reason)
	}
	return err
}

// CheckOwners returns nil if the caller may add owner references to a ManifestWork: the garbage collector deletes it
// with its owners. Otherwise it returns a Forbidden error that contains the missing rule, or an InternalError.
func (c *Checker) CheckOwners(ctx context.Context, namespace, name string) error {
	access := ResourceAttributes(namespace, name)
	access.Verb = "delete"
	return authz.Check(ctx, c.Authorizer, access, workv1.Resource(resource), name, "add owner references, with which a ManifestWork is deleted")
}

// check checks one executor. The verdict is empty if the check fails internally.
func (c *Checker) check(ctx context.Context, q question, executor *workv1.ManifestWorkExecutor) (verdict, error) {
	switch {
	case executor == nil && c.NilExecutor == Deny && !q.former:
		return verdict{forbid, "spec.executor is required on this hub"},
			q.refuse(errors.New("spec.executor is required on this hub (--nil-executor=Deny)"))
	case executor == nil && (c.NilExecutor == Check || c.NilExecutor == Deny):
		q.name, q.agent = AgentExecutor, true
	case executor == nil:
		return verdict{}, nil
	case executor.Subject.ServiceAccount == nil:
		const reason = "spec.executor names no ServiceAccount"
		return verdict{forbid, reason}, q.refuse(errors.New(reason))
	default:
		account := executor.Subject.ServiceAccount
		q.executor = types.NamespacedName{Namespace: account.Namespace, Name: account.Name}
		q.name = serviceaccount.MakeUsername(account.Namespace, account.Name)
	}

	var err error
	if q.caller, err = c.caller(ctx); err != nil {
		return verdict{}, err
	}
	return c.decide(ctx, q)
}

// ResourceAttributes returns the access that is required to use the executor of a name.
// An empty namespace stands for all clusters.
func ResourceAttributes(namespace, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: "execute-as", Group: workv1.GroupName, Version: "v1", Resource: resource, Namespace: namespace, Name: name,
	}
}

// question is whether a caller may use an executor for a ManifestWork.
type question struct {
	caller          user.Info
	namespace, work string
	executor        types.NamespacedName
	// agent is set if the ManifestWork has no executor and acts as the agent.
	agent bool
	// former is set if the update replaces the executor.
	former bool
	// name is the name of the executor in RBAC rules of the hub.
	name string
	// ineffective explains why a binding that names the caller has no effect.
	ineffective string
}

func (c *Checker) decide(ctx context.Context, q question) (verdict, error) {
	decision, reason, err := authz.Decide(ctx, c.Authorizer, q.caller, ResourceAttributes(q.namespace, q.name))
	switch {
	case err != nil:
		return verdict{}, apierrors.NewInternalError(err)
	case decision == authorizer.DecisionAllow:
		return verdict{allow, reason}, nil
	}
	// A binding cannot override an authorizer that denies explicitly.
	if decision != authorizer.DecisionDeny && !q.agent && c.Bindings != nil {
		binding, ineffective, err := c.bound(ctx, q.caller, q.namespace, q.executor)
		if err != nil {
			return verdict{}, apierrors.NewInternalError(fmt.Errorf("checking whether a ManagedServiceAccountBinding allows user %q to %s: %w", q.caller.GetName(), q.action(), err))
		}
		if binding != "" {
			return verdict{allow, fmt.Sprintf("ManagedServiceAccountBinding %q", q.namespace+"/"+binding)}, nil
		}
		q.ineffective = ineffective
	}
	return verdict{forbid, fmt.Sprintf("user %q cannot %s", q.caller.GetName(), q.action())}, q.refuse(c.refusal(ctx, q))
}

// caller returns the author of the request. The server's own requests come through its
// loopback client; they are checked for the server's identity on the hub.
func (c *Checker) caller(ctx context.Context) (user.Info, error) {
	caller, err := authz.Caller(ctx)
	if err != nil || caller.GetName() != user.APIServerUser || !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return caller, err
	}
	if c.Server == nil {
		return nil, apierrors.NewInternalError(errors.New("this server does not know its identity on the hub"))
	}
	server, err := c.Server(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading this server's identity on the hub: %w", err))
	}
	return server, nil
}

// NilExecutor is the policy for ManifestWorks without an executor, which act as the agent.
type NilExecutor string

const (
	// Allow allows them for all users with permission to write ManifestWorks.
	Allow NilExecutor = "Allow"
	// Deny denies them.
	Deny NilExecutor = "Deny"
	// Check requires the permission to use the agent's own ServiceAccount.
	Check NilExecutor = "Check"
)

// NilExecutors are all policies.
var NilExecutors = []NilExecutor{Allow, Deny, Check}

// AgentExecutor is the name in execute-as rules of a ManifestWork without executor. Like
// on upstream hubs it has no namespace, so it differs from every executor.
const AgentExecutor = "system:serviceaccount::klusterlet-work-sa"

const (
	// The audit annotations of a request with a verdict.
	decisionAnnotation = "executor.work.open-cluster-management.io/decision"
	reasonAnnotation   = "executor.work.open-cluster-management.io/reason"

	allow  = "allow"
	forbid = "forbid"
)

// verdict is the decision on a write and its reason. The zero value is the verdict on a
// write that requires no decision.
type verdict struct{ decision, reason string }

// and joins two verdicts that do not forbid.
func (v verdict) and(other verdict) verdict {
	switch {
	case v.decision == "":
		return other
	case other.decision == "":
		return v
	}
	return verdict{allow, v.reason + "; " + other.reason}
}

// Bind returns nil if the caller may bind a ManagedServiceAccount to users, a Forbidden error if not, or an InternalError.
func Bind(ctx context.Context, a authorizer.Authorizer, namespace, account string) error {
	const accounts = "managedserviceaccounts"
	return authz.Check(ctx, a, authorizationv1.ResourceAttributes{
		Verb: "bind", Group: authenticationv1beta1.GroupName, Version: "*", Resource: accounts, Namespace: namespace, Name: account,
	}, authenticationv1beta1.Resource(accounts), account, "bind this ManagedServiceAccount to users")
}
