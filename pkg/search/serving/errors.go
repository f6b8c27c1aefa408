package serving

import (
	"context"
	"errors"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Unavailable returns an API error with status 503 and the time after which the client may retry.
// The time varies, so that clients that were rejected together do not retry together.
func Unavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(RetryAfter())}
	return err
}

// RetryAfter returns the number of seconds after which a client may retry.
func RetryAfter() int {
	return int(math.Ceil(wait.Jitter(2*time.Second, 3).Seconds()))
}

// Error turns an error of an engine into an API error. Details of the engine are only logged.
func Error(ctx context.Context, err error) error {
	var known apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, search.ErrExpired):
		return apierrors.NewResourceExpired("the continue token or resource version is too old; start again without it")
	case errors.Is(err, search.ErrLoading):
		return Unavailable("the server has just started and is loading the search data; try again later")
	case errors.Is(err, search.ErrUnavailable):
		klog.FromContext(ctx).Error(err, "The search engine is unavailable")
		return Unavailable("the search engine is unavailable; try again later")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the search took too long", RetryAfter())
	}
	klog.FromContext(ctx).Error(err, "The search engine failed")
	return apierrors.NewInternalError(errors.New("the search engine failed"))
}
