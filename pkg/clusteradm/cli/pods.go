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

const correctCause = "correct the cause in the message; see kubectl describe pod"

// PodProblem returns the cause and the remedy if a Deployment has no running Pods, or a container was OOMKilled in the last 24
// hours. Both are empty if it finds no cause, or has no permission to read the Pods.
func PodProblem(ctx context.Context, kube kubernetes.Interface, deployment *appsv1.Deployment) (cause, remedy string) {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return "no Pod can be created: " + condition.Message, "correct the cause in the message; create or raise a ResourceQuota, or lower --resource-requests and --resource-limits"
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
			return waiting.Reason + ": " + waiting.Message, correctCause
		}
		ended := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
		switch {
		case ended == nil || status.Ready && (ended.Reason != "OOMKilled" || time.Since(ended.FinishedAt.Time) > 24*time.Hour):
			continue
		case ended.Reason == "OOMKilled":
			return "container " + status.Name + " was OOMKilled at its memory limit", "raise it with --resource-limits: " + version.Docs("sizing.md#memory-limit")
		case status.State.Running != nil && time.Since(status.State.Running.StartedAt.Time) > 5*time.Minute:
			continue // not ready for another reason
		}
		log := strings.TrimSpace(ended.Message)
		last := log[1+strings.LastIndex(log, "\n"):]
		cause = fmt.Sprintf("container %s ended with exit code %d: %s", status.Name, ended.ExitCode, last)
		if strings.Contains(last, "permission denied") && !strings.Contains(last, "permission denied for") { // of PostgreSQL
			return cause, "use a volume that the user of the container can write: " + version.Docs("install.md#volumes")
		}
		return cause, fmt.Sprintf("see kubectl -n %s logs deployment/%s --previous", pod.Namespace, deployment)
	}
	return "", ""
}

// pendingProblem returns why a Pod is not scheduled, or its containers are not created. Volumes of a StorageClass with
// WaitForFirstConsumer are bound when the Pod can be scheduled.
func pendingProblem(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) (cause, remedy string) {
	unscheduled := ""
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			unscheduled = condition.Message
		}
	}
	unbound := strings.Contains(unscheduled, "PersistentVolumeClaim") || strings.Contains(unscheduled, "persistent volume")
	for _, volume := range pod.Spec.Volumes {
		if unscheduled != "" && !unbound {
			break
		}
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := kube.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		failure := lastFailure(ctx, kube, pod.Namespace, claim.UID)
		remedy := fmt.Sprintf("see kubectl -n %s describe pvc %s, and the provisioner of its StorageClass", pod.Namespace, name)
		if unbound || strings.HasPrefix(failure, ": FailedBinding") {
			remedy = "create a default StorageClass or a PersistentVolume, or set --storage-class: " + version.Docs("install.md#volumes")
		}
		return "the PersistentVolumeClaim " + name + " is not bound" + failure, remedy
	}
	if unscheduled != "" {
		return "it cannot be scheduled: " + unscheduled, "make room on a node, or lower --resource-requests; see kubectl describe pod for taints and selectors"
	}
	if failure := lastFailure(ctx, kube, pod.Namespace, pod.UID); failure != "" { // of a volume, or of its network
		return "it does not start" + failure, correctCause
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
