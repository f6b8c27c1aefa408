// Package authz sends access checks of the server to the hub's authorizer. Its
// sub-packages decide which access a request requires.
package authz

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// MaxReviews is the maximum number of objects, such as clusters, for which one request may require an access review each.
const MaxReviews = 1000

// Caller returns the user of the request of ctx. Its error is an InternalError.
func Caller(ctx context.Context) (user.Info, error) {
	caller, known := request.UserFrom(ctx)
	if !known {
		return nil, apierrors.NewInternalError(errors.New("the request has no user"))
	}
	return caller, nil
}

// Decide returns the decision of the authorizer on the access of a user, and its reason.
// An error means that the authorizer could not decide. It is not a denial.
func Decide(ctx context.Context, a authorizer.Authorizer, u user.Info, access authorizationv1.ResourceAttributes) (authorizer.Decision, string, error) {
	decision, reason, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            access.Verb,
		APIGroup:        access.Group,
		APIVersion:      access.Version,
		Resource:        access.Resource,
		Subresource:     access.Subresource,
		Namespace:       access.Namespace,
		Name:            access.Name,
		ResourceRequest: true,
	})
	if err != nil && decision != authorizer.DecisionAllow {
		return decision, "", fmt.Errorf("checking whether user %q can %s: %w", u.GetName(), Describe(access), err)
	}
	return decision, reason, nil
}

// Allowed reports whether the authorizer allows the access of a user. It returns an error if Decide returns one.
func Allowed(ctx context.Context, a authorizer.Authorizer, u user.Info, access authorizationv1.ResourceAttributes) (bool, error) {
	decision, _, err := Decide(ctx, a, u, access)
	return decision == authorizer.DecisionAllow, err
}

// Check returns nil if the caller of ctx is allowed the access. Otherwise it returns a Forbidden error on an object, whose
// message contains the denied action and the rule that would allow it, or an InternalError if the authorizer could not decide.
func Check(ctx context.Context, a authorizer.Authorizer, access authorizationv1.ResourceAttributes, resource schema.GroupResource, name, action string) error {
	caller, err := Caller(ctx)
	if err != nil {
		return err
	}
	allowed, err := Allowed(ctx, a, caller, access)
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case !allowed:
		return apierrors.NewForbidden(resource, name, fmt.Errorf("user %q cannot %s; grant it with %s",
			caller.GetName(), action, rbac.RoleText(access.Namespace, rbac.RuleFor(access))))
	}
	return nil
}

// Describe returns the verb and the object of a request as text, for messages.
func Describe(access authorizationv1.ResourceAttributes) string {
	text := access.Verb + " " + schema.GroupResource{Group: access.Group, Resource: access.Resource}.String()
	if access.Subresource != "" {
		text += "/" + access.Subresource
	}
	if access.Name != "" {
		text += fmt.Sprintf(" %q", access.Name)
	}
	if access.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", access.Namespace)
	}
	return text
}
