package terms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Unavailable is the API error for what passes by itself. It says when to try again, which varies, so that
// callers who were refused together do not come back together.
func Unavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(RetryAfter())}
	return err
}

// RetryAfter is after how many seconds to try again.
func RetryAfter() int {
	return int(math.Ceil(wait.Jitter(2*time.Second, 3).Seconds()))
}

// Scope is what the caller of a request may find. Its errors are API errors.
func Scope(ctx context.Context, scopes search.Scopes) (visibility.Scope, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return visibility.Scope{}, apierrors.NewUnauthorized("the request has no user")
	}
	scope, err := scopes.Scope(ctx, caller)
	if err != nil {
		klog.FromContext(ctx).Error(err, "no scope for a search", "user", caller.GetName())
		return visibility.Scope{}, Unavailable("what you may list is not known right now; try again")
	}
	return scope, nil
}

// Error is the API error for one of an engine. What the engine says is for the log.
func Error(ctx context.Context, err error) error {
	var refused apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		// What was refused by a limit says so itself.
		return err
	case errors.Is(err, search.ErrExpired):
		return apierrors.NewResourceExpired("the continue token or resource version is too old; begin again without it")
	case errors.Is(err, search.ErrUnavailable):
		klog.FromContext(ctx).Error(err, "the search engine is not available")
		return Unavailable("the search engine is not available at the moment; try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the search took too long", RetryAfter())
	}
	klog.FromContext(ctx).Error(err, "search engine")
	return apierrors.NewInternalError(fmt.Errorf("the search engine failed"))
}
