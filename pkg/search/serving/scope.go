package serving

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Scope returns the scope of the user of a request. Its errors are API errors.
func Scope(ctx context.Context, scopes search.Scopes) (visibility.Scope, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return visibility.Scope{}, apierrors.NewUnauthorized("the request has no user")
	}
	return ScopeOf(ctx, scopes, caller)
}

// ScopeOf returns the scope of a user. Its errors are API errors.
func ScopeOf(ctx context.Context, scopes search.Scopes, caller user.Info) (visibility.Scope, error) {
	scope, err := scopes.Scope(ctx, caller)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot determine the scope of a search", "user", caller.GetName())
		return visibility.Scope{}, Unavailable("your permissions on the resources of the fleet are unknown at the moment; try again later")
	}
	return scope, nil
}
