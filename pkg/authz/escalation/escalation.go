// Package escalation applies the rule of Kubernetes RBAC against escalation to
// ClusterPermissions: nobody grants on a managed cluster what it does not hold
// there, unless the hub allows it to escalate or bind on clusterpermissions.
//
// A check goes grants (what a spec grants) → changes (what of it is new) → held
// (what the caller holds on the managed cluster) → Refusal. Only escalation.go and
// reads.go ask the authorizer; nothing else builds the attributes of these questions.
package escalation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	resource = "clusterpermissions"

	// verbEscalate allows all rules of a ClusterPermission, verbBind all its bindings.
	verbEscalate = "escalate"
	verbBind     = "bind"
)

// Checker tells what callers may not grant. It may be used concurrently.
type Checker struct {
	// Authorizer answers for the hub.
	Authorizer authorizer.Authorizer
	// Delivered returns the manifests of the works of a namespace's
	// ClusterPermissions that are applied on the managed cluster now. It is asked
	// at most once by a Check, and not at all for callers whom the hub allows everything.
	Delivered func(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// Check tells what of cp the caller of ctx may not grant; nil if it may grant all
// of it. What delivered, the spec that was allowed before, granted already needs no
// permission again; it is nil if there was none. An error is an internal one: the
// question could not be answered, and the request must not go on.
func (c *Checker) Check(ctx context.Context, cp *rbacv1alpha1.ClusterPermission, delivered *rbacv1alpha1.ClusterPermissionSpec) (*Refusal, error) {
	caller, err := callerOf(ctx)
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
		return nil, apierrors.NewInternalError(fmt.Errorf("reading what is delivered to managed cluster %q: %w", cp.Namespace, err))
	}
	judge := newJudge(caller, manifests, before, work)
	refusal := &Refusal{User: caller.GetName(), Namespace: cp.Namespace, Name: cp.Name}
	// The next try would get another name.
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

// More reports whether cp grants anything that delivered, nil for nothing, did not
// grant, whoever asks.
func More(cp *rbacv1alpha1.ClusterPermission, delivered *rbacv1alpha1.ClusterPermissionSpec) bool {
	return len(newGrants(cp.Name, &cp.Spec, newGranted(cp.Name, delivered), newBudget())) > 0
}

// withoutAllowed leaves out the grants whose verb the hub allows the caller. It
// asks for each verb once, and for none that no grant takes.
func (c *Checker) withoutAllowed(ctx context.Context, caller user.Info, cp *rbacv1alpha1.ClusterPermission, grants []grant) ([]grant, error) {
	allowed := map[string]bool{}
	var left []grant
	for i := range grants {
		verb := grants[i].verb
		if _, asked := allowed[verb]; !asked {
			answer, err := allows(ctx, c.Authorizer, authorizer.AttributesRecord{
				User:            caller,
				Verb:            verb,
				APIGroup:        rbacv1alpha1.GroupName,
				APIVersion:      "*",
				Resource:        resource,
				Namespace:       cp.Namespace,
				Name:            cp.Name,
				ResourceRequest: true,
			})
			if err != nil {
				return nil, err
			}
			allowed[verb] = answer
		}
		if !allowed[verb] {
			left = append(left, grants[i])
		}
	}
	return left, nil
}

func callerOf(ctx context.Context) (user.Info, error) {
	caller, known := request.UserFrom(ctx)
	if !known {
		return nil, apierrors.NewInternalError(errors.New("the request has no user"))
	}
	return caller, nil
}

// allows fails if the question got no answer: nobody is told to be forbidden what
// could not be asked.
func allows(ctx context.Context, authz authorizer.Authorizer, question authorizer.AttributesRecord) (bool, error) {
	decision, _, err := authz.Authorize(ctx, question)
	switch {
	case decision == authorizer.DecisionAllow:
		return true, nil
	case err != nil:
		return false, apierrors.NewInternalError(fmt.Errorf("asking whether %q may %s %s %q: %w",
			question.User.GetName(), question.Verb, question.Resource, question.Name, err))
	}
	return false, nil
}
