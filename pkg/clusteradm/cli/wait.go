package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// delays are the delays of Poll. The first are short, because most waits end within milliseconds.
var delays = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Steps: 10, Cap: 500 * time.Millisecond}

// Poll calls check until it returns no reason to wait, or an error that is not temporary, or ctx ends.
func Poll(ctx context.Context, check func(context.Context) (reason string, err error)) error {
	var last string
	err := delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		reason, err := check(ctx)
		switch {
		case err == nil:
			last = reason
			return reason == "", nil
		case Temporary(err):
			// The last reason is more useful than the error of the timeout.
			if ctx.Err() == nil || last == "" {
				last = err.Error()
			}
			return false, nil
		}
		return false, err
	})
	if err != nil && wait.Interrupted(err) && last != "" {
		return errors.New("timed out: " + last)
	}
	return err
}

// Persist repeats a request while its error may be temporary, but not after a conflict, for at most a minute.
func Persist(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var conflict error
	err := Poll(ctx, func(ctx context.Context) (string, error) {
		err := request(ctx)
		if apierrors.IsConflict(err) {
			conflict, err = err, nil
		}
		return "", err
	})
	return cmp.Or(conflict, err)
}

// Sleep waits for a time, or until ctx ends.
func Sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// workers is the number of items of ForEach that are processed at the same time.
const workers = 16

// ForEach calls do for each item: an item whose call fails prevents no other call. The error contains the first of many.
func ForEach[T any](items []T, do func(T) error) error {
	errs := Errors(items, do)
	if more := len(errs) - maxListed; more > 0 {
		errs = append(errs[:maxListed], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// Errors does the same, and returns all errors in the order of the items.
func Errors[T any](items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, item := range items {
		group.Go(func() error {
			errs[i] = do(item)
			return nil
		})
	}
	_ = group.Wait() // the functions return none
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// Temporary reports whether an error may be temporary.
func Temporary(err error) bool {
	// The server did not respond.
	var transport *url.Error
	if errors.As(err, &transport) {
		return !IsCertificateError(err)
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsConflict(err)
}

// IsCertificateError reports whether the verification of a server failed.
func IsCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

// WaitForDeployment waits until the newest revision of a Deployment is available. It prints why its Pods do not run.
func (e Environment) WaitForDeployment(ctx context.Context, kube kubernetes.Interface, namespace, name string) error {
	start, printed := time.Now(), ""
	return Prefix(Poll(ctx, func(ctx context.Context) (string, error) {
		deployment, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		reason := Rolling(deployment)
		if reason == "" {
			return "", nil
		}
		if cause, remedy := PodProblem(ctx, kube, deployment); cause != "" {
			reason = Printable(cause + "; to do: " + remedy)
			// A start without problems may also have one for seconds. The message may change, and the remedy is the same.
			if remedy != printed && time.Since(start) > 5*time.Second {
				e.Warn("still waiting: %s", reason)
				printed = remedy
			}
		}
		return reason, ctx.Err()
	}), "the Deployment %s in %s", name, namespace)
}

// WaitForNoPods waits until a namespace has no Pod with the labels that may still run.
func WaitForNoPods(ctx context.Context, kube kubernetes.Interface, namespace, labels string) error {
	return Poll(ctx, func(ctx context.Context) (string, error) {
		pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: labels,
			// A ReplicaSet does not delete the Pods that a node has evicted.
			FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
		})
		if err != nil || len(pods.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("Pod %s in %s still runs", pods.Items[0].Name, namespace), nil
	})
}

// Rolling returns the reason to wait for a Deployment, or an empty string if it is available.
func Rolling(deployment *appsv1.Deployment) string {
	wanted, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	if status.ObservedGeneration < deployment.Generation {
		return "kube-controller-manager has not processed it yet"
	}
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted && status.Replicas == status.UpdatedReplicas {
		return ""
	}
	return fmt.Sprintf("%d of %d Pods are available", min(status.UpdatedReplicas, status.AvailableReplicas), wanted)
}
