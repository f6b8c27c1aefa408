package terms

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const retryAfterSeconds = 1

// Scope is what the caller of a request may find. Its errors are API errors.
func Scope(ctx context.Context, scopes search.Scopes) (visibility.Scope, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return visibility.Scope{}, apierrors.NewUnauthorized("the request has no user")
	}
	scope, err := scopes.Scope(ctx, caller)
	if err != nil {
		klog.FromContext(ctx).Error(err, "no scope for a search", "user", caller.GetName())
		return visibility.Scope{}, apierrors.NewServiceUnavailable("what you may list is not known right now; try again")
	}
	return scope, nil
}

// Error is the API error for one of an engine.
func Error(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, search.ErrExpired):
		return apierrors.NewResourceExpired("the continue token or resource version is too old; begin again without it")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the search took too long", retryAfterSeconds)
	}
	klog.FromContext(ctx).Error(err, "search engine")
	return apierrors.NewInternalError(fmt.Errorf("the search engine failed"))
}
