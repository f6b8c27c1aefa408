package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const pollInterval = 500 * time.Millisecond

// poll asks until check returns no reason to wait, or ctx ends. The error then says
// what was waited for. An error of check ends it, unless asking again may help.
func poll(ctx context.Context, check func(context.Context) (reason string, err error)) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		reason, err := check(ctx)
		switch {
		case err == nil:
			last = reason
			return reason == "", nil
		case passing(err):
			// What was known before the time was up says more than that it is.
			if ctx.Err() == nil || last == "" {
				last = err.Error()
			}
			return false, nil
		}
		return false, err
	})
	if err != nil && wait.Interrupted(err) && last != "" {
		return errors.New("gave up waiting: " + last)
	}
	return err
}

// passing tells of an error whether it may go away by itself.
func passing(err error) bool {
	// No answer.
	var transport *url.Error
	if errors.As(err, &transport) {
		return !isCertificateError(err)
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsConflict(err)
}

// waitForDeployment waits until the newest version of a Deployment runs.
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

// rolling is what a Deployment is still waited for; empty if it runs as it should.
func rolling(deployment *appsv1.Deployment) string {
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	status := deployment.Status
	if status.ObservedGeneration < deployment.Generation {
		return "not looked at yet by kube-controller-manager"
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

// unavailable is why an APIService is not Available; empty if it is.
func unavailable(apiService *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(apiService.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] != "Available" {
			continue
		}
		if condition["status"] == string(metav1.ConditionTrue) {
			return ""
		}
		return fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
	}
	return "not checked yet"
}
