package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const correctNamed = "correct what the message names; see kubectl describe pod"

// PodProblem returns why a Deployment has no Pods or they do not run, or were out of memory within a day, and what to do. Both
// are empty if it finds no cause, or has no permission to read the Pods.
func PodProblem(ctx context.Context, kube kubernetes.Interface, deployment *appsv1.Deployment) (cause, remedy string) {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure {
			return "no Pod can be created: " + condition.Message, "correct what the message names; create or raise a ResourceQuota, or lower --resource-requests and --resource-limits"
		}
	}
	pods, err := kube.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	if err != nil {
		return "", ""
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if cause, remedy = containerProblem(pod, deployment.Name); cause == "" && pod.Status.Phase == corev1.PodPending {
			cause, remedy = pendingProblem(ctx, kube, pod)
		}
		if cause != "" {
			return "Pod " + pod.Name + ": " + cause, remedy
		}
	}
	return "", ""
}

func containerProblem(pod *corev1.Pod, deployment string) (cause, remedy string) {
	for _, status := range pod.Status.ContainerStatuses {
		waiting := ptr.Deref(status.State.Waiting, corev1.ContainerStateWaiting{})
		switch waiting.Reason {
		case "", "ContainerCreating", "PodInitializing", "CrashLoopBackOff":
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return fmt.Sprintf("the image %s cannot be pulled: %s: %s", status.Image, waiting.Reason, waiting.Message),
				"push or import the image, set --image-registry, --bundle-version or --image, or add an imagePullSecret to the ServiceAccount: " + version.Docs("air-gapped.md")
		default:
			return waiting.Reason + ": " + waiting.Message, correctNamed
		}
		ended := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
		switch {
		case ended == nil || status.Ready && (ended.Reason != "OOMKilled" || time.Since(ended.FinishedAt.Time) > 24*time.Hour):
			continue
		case ended.Reason == "OOMKilled":
			return "container " + status.Name + " was OOMKilled at its memory limit", "raise it with --resource-limits: " + version.Docs("sizing.md#memory-limit")
		}
		log := strings.TrimSpace(ended.Message)
		cause = fmt.Sprintf("container %s ended with exit code %d: %s", status.Name, ended.ExitCode, log[1+strings.LastIndex(log, "\n"):])
		if strings.Contains(log, "permission denied") {
			return cause, "use a volume that the user of the container can write: " + version.Docs("install.md#volumes")
		}
		return cause, fmt.Sprintf("see kubectl -n %s logs deployment/%s --previous", pod.Namespace, deployment)
	}
	return "", ""
}

// pendingProblem returns why a Pod is not scheduled, or its containers are not created.
func pendingProblem(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) (cause, remedy string) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		if claim, err := kube.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{}); err == nil && claim.Status.Phase != corev1.ClaimBound {
			return "the PersistentVolumeClaim " + name + " is not bound" + lastFailure(ctx, kube, pod.Namespace, claim.UID),
				"create a default StorageClass or a PersistentVolume, or set --storage-class: " + version.Docs("install.md#volumes")
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "it cannot be scheduled: " + condition.Message, "make room on a node, or lower --resource-requests; see kubectl describe pod for taints and selectors"
		}
	}
	if failure := lastFailure(ctx, kube, pod.Namespace, pod.UID); failure != "" { // of a volume, or of its network
		return "it does not start" + failure, correctNamed
	}
	return "", ""
}

// lastFailure returns the newest Event that an object failed, after a colon, or an empty string.
func lastFailure(ctx context.Context, kube kubernetes.Interface, namespace string, object types.UID) string {
	events, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(object)).String()})
	if err != nil {
		return ""
	}
	failure, latest := "", time.Time{}
	for _, event := range events.Items { // FailedBinding of a claim is Normal
		if (event.Type == corev1.EventTypeWarning || strings.HasPrefix(event.Reason, "Failed")) && !event.LastTimestamp.Time.Before(latest) {
			failure, latest = ": "+event.Reason+": "+event.Message, event.LastTimestamp.Time
		}
	}
	return failure
}
