package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// delays are the delays of poll. The first are short, because most waits end within milliseconds.
var delays = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Steps: 10, Cap: 500 * time.Millisecond}

// poll calls check until it returns no reason to wait, or ctx ends. The error then
// contains the last reason. An error of check ends poll unless it may be temporary.
func poll(ctx context.Context, check func(context.Context) (reason string, err error)) error {
	var last string
	err := delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		reason, err := check(ctx)
		switch {
		case err == nil:
			last = reason
			return reason == "", nil
		case passing(err):
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

// forEach calls do for each item, for at most copyWorkers of them at the same time, and returns all errors: an item whose
// call fails prevents no other call. The error names at most maxListed of them.
func forEach[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var group errgroup.Group
	group.SetLimit(copyWorkers)
	for i, item := range items {
		group.Go(func() error {
			errs[i] = do(item)
			return nil
		})
	}
	_ = group.Wait() // the functions return none
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxListed; more > 0 {
		errs = append(errs[:maxListed], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// passing reports whether an error may be temporary.
func passing(err error) bool {
	// The server did not respond.
	var transport *url.Error
	if errors.As(err, &transport) {
		return !isCertificateError(err)
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsConflict(err)
}

// waitForDeployment waits until the newest revision of a Deployment is available.
func waitForDeployment(ctx context.Context, kube kubernetes.Interface, namespace, name string) error {
	if err := poll(ctx, func(ctx context.Context) (string, error) {
		deployment, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return rolling(deployment), nil
	}); err != nil {
		return fmt.Errorf("the Deployment %s in %s: %w", name, namespace, err)
	}
	return nil
}

// rolling returns the reason to wait for a Deployment, or an empty string if it is available.
func rolling(deployment *appsv1.Deployment) string {
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	status := deployment.Status
	if status.ObservedGeneration < deployment.Generation {
		return "kube-controller-manager has not processed it yet"
	}
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted && status.Replicas == status.UpdatedReplicas {
		return ""
	}
	for _, condition := range status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure {
			return condition.Message
		}
	}
	return fmt.Sprintf("%d of %d Pods are available", min(status.UpdatedReplicas, status.AvailableReplicas), wanted)
}

// unavailable returns the reason why an APIService is not Available, or an empty string
// if it is.
func unavailable(apiService *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(apiService.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] != "Available" {
			continue
		}
		if _, forwarded, _ := unstructured.NestedMap(apiService.Object, "spec", "service"); forwarded && condition["reason"] == reasonLocal {
			return "the hub has not checked it yet since it forwards requests to it"
		}
		if condition["status"] == string(metav1.ConditionTrue) {
			return ""
		}
		return fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
	}
	return "not checked yet"
}
