package membership

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// firstPause and mostPause bound the delay after a failed request.
	firstPause = 500 * time.Millisecond
	mostPause  = 2 * time.Minute
	// soonPause and pollPause bound the delay between reads of an object that the agent waits for. The hub grants the access
	// of a new cluster a moment after its certificate.
	soonPause = 200 * time.Millisecond
	pollPause = 5 * time.Second
)

// backoff returns delays that double, with a jitter of up to half of the delay.
func backoff(first, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Cap: most, Factor: 2, Jitter: 0.5, Steps: math.MaxInt}
}

// poll calls ask until it returns true or an error. It is for objects that the bootstrap identity may get by name, but not
// watch.
func poll(ctx context.Context, ask func(context.Context) (bool, error)) error {
	return backoff(soonPause, pollPause).DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return ask(ctx)
	})
}

// temporary reports whether a request may succeed if it is repeated soon.
func temporary(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
}

// insist repeats an operation until it succeeds, and returns nil. If ctx ends, or waiting cannot resolve an error, it
// returns that error. The problem says what the agent cannot do meanwhile.
func (r *Registrar) insist(ctx context.Context, problem string, do func(context.Context) error) error {
	waits := backoff(firstPause, mostPause)
	for {
		err := do(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		delay := waits.Step()
		r.note(fmt.Sprintf("%s: %v", problem, err))
		klog.FromContext(ctx).Error(err, "The agent waits", "problem", problem, "retryAfter", delay)
		if !reconcile.Pause(ctx, delay, nil) {
			return ctx.Err()
		}
	}
}

// repeat calls do until ctx ends: again after the period, at once when wake is signalled, and with growing delays of at
// most mostRetry after an error. It logs an error unless it is that of the last call.
func repeat(ctx context.Context, failure string, period func() time.Duration, mostRetry time.Duration, wake <-chan struct{}, do func(context.Context) error) {
	retries, logged := backoff(firstPause, mostRetry), reconcile.Complaint{}
	for {
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		delay := period()
		if err == nil {
			retries = backoff(firstPause, mostRetry)
		} else {
			delay = retries.Step()
		}
		if logged.Differs(err) {
			klog.FromContext(ctx).Info(failure, "err", err, "retryAfter", delay)
		}
		if !reconcile.Pause(ctx, delay, wake) {
			return
		}
	}
}

// final reports whether waiting cannot resolve an error.
func final(err error) bool {
	return errors.As(err, new(*foreignError)) || errors.Is(err, errSecretDeleted) || errors.Is(err, errRaised)
}
