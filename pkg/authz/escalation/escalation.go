// Package escalation applies the privilege escalation prevention of Kubernetes RBAC to
// ClusterPermissions: users cannot grant permissions on a managed cluster that they do
// not hold there, unless the hub allows them to escalate or bind clusterpermissions.
//
// A check reads the permissions that a spec grants (spec.go) and removes the permissions
// that were granted before (grants.go). It compares the rest with the permissions of the
// caller on the managed cluster (held.go, judge.go). The result is a Refusal, or nil.
package escalation

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

const (
	resource = "clusterpermissions"

	// verbEscalate allows all rules of a ClusterPermission, verbBind all its bindings.
	verbEscalate = "escalate"
	verbBind     = "bind"
)

// Checker checks the permissions that ClusterPermissions grant. It may be used concurrently.
type Checker struct {
	// Authorizer decides about access to the hub.
	Authorizer authorizer.Authorizer
	// Delivered returns the manifests of a managed cluster's ClusterPermissions that are applied there now. A Check
	// calls it at most once, and only if the caller lacks escalate or bind.
	Delivered func(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// Check returns the permissions in cp that the caller of ctx may not grant, or nil if the caller may grant all of them.
// delivered is the spec that was allowed before, or nil. The permissions that it granted are not checked again. The
// error is an InternalError: the check failed, and the request must fail.
func (c *Checker) Check(ctx context.Context, cp *rbacv1alpha1.ClusterPermission, delivered *rbacv1alpha1.ClusterPermissionSpec) (*Refusal, error) {
	caller, err := authz.Caller(ctx)
	if err != nil {
		return nil, err
	}
	work, before := newBudget(), newGranted(cp.Name, delivered)
	needed := newGrants(cp.Name, &cp.Spec, before, work)
	needed, err = c.withoutAllowed(ctx, caller, cp, needed)
	if err != nil || len(needed) == 0 {
		return nil, err
	}

	manifests, err := c.Delivered(ctx, cp.Namespace)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the manifests that are applied on managed cluster %q: %w", cp.Namespace, err))
	}
	judge := newJudge(caller, manifests, before, work)
	refusal := &Refusal{User: caller.GetName(), Namespace: cp.Namespace, Name: cp.Name}
	// The server generates another name for the next attempt.
	refusal.generated = delivered == nil && cp.GenerateName != ""
	for i := range needed {
		if missing := judge.missing(&needed[i]); missing != nil {
			refusal.Missing = append(refusal.Missing, *missing)
		}
	}
	if len(refusal.Missing) == 0 {
		return nil, nil
	}
	return refusal, nil
}

// More reports whether cp grants permissions that delivered does not grant. delivered may be nil.
func More(cp *rbacv1alpha1.ClusterPermission, delivered *rbacv1alpha1.ClusterPermissionSpec) bool {
	return len(newGrants(cp.Name, &cp.Spec, newGranted(cp.Name, delivered), newBudget())) > 0
}

// withoutAllowed removes the grants whose verb the hub allows to the caller. It checks each verb at most once.
func (c *Checker) withoutAllowed(ctx context.Context, caller user.Info, cp *rbacv1alpha1.ClusterPermission, grants []grant) ([]grant, error) {
	allowed := map[string]bool{}
	var left []grant
	for i := range grants {
		verb := grants[i].verb
		if _, checked := allowed[verb]; !checked {
			var err error
			allowed[verb], err = authz.Allowed(ctx, c.Authorizer, caller, authorizationv1.ResourceAttributes{
				Verb: verb, Group: rbacv1alpha1.GroupName, Version: "*", Resource: resource, Namespace: cp.Namespace, Name: cp.Name,
			})
			if err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
		if !allowed[verb] {
			left = append(left, grants[i])
		}
	}
	return left, nil
}
