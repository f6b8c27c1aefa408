package inventory

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func podProperties(pod *corev1.Pod, properties map[string]any) {
	status, restarts := podStatus(pod)
	properties["status"] = status
	properties["restarts"] = restarts
	properties["hostIP"] = pod.Status.HostIP
	properties["podIP"] = pod.Status.PodIP
	properties["node"] = pod.Spec.NodeName
	if pod.Status.StartTime != nil {
		properties["startedAt"] = pod.Status.StartTime.UTC().Format(time.RFC3339)
	}
	var names, images, initial []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
		images = append(images, pod.Spec.Containers[i].Image)
	}
	for i := range pod.Spec.InitContainers {
		initial = append(initial, pod.Spec.InitContainers[i].Name)
	}
	properties["container"], properties["image"], properties["initContainer"] = names, images, initial
}

// podStatus returns the columns STATUS and RESTARTS of kubectl.
func podStatus(pod *corev1.Pod) (status string, restarts int32) {
	status = string(pod.Status.Phase)
	if pod.Status.Reason != "" {
		status = pod.Status.Reason
	}
	conditions := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, condition := range pod.Status.Conditions {
		conditions[condition.Type] = condition
	}
	if conditions[corev1.PodScheduled].Reason == corev1.PodReasonSchedulingGated {
		status = corev1.PodReasonSchedulingGated
	}
	initial, sidecarRestarts, initRestarts := initStatus(pod)
	if initial != "" {
		status = initial
	}
	restarts = initRestarts
	if initial == "" || conditions[corev1.PodInitialized].Status == corev1.ConditionTrue {
		restarts = sidecarRestarts
		running := false
		// As in kubectl, the first container takes precedence, so it is evaluated last.
		for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
			container := &pod.Status.ContainerStatuses[i]
			restarts += container.RestartCount
			switch state := &container.State; {
			case state.Waiting != nil && state.Waiting.Reason != "":
				status = state.Waiting.Reason
			case state.Terminated != nil:
				status = terminated(state.Terminated)
			case container.Ready && state.Running != nil:
				running = true
			}
		}
		if status == "Completed" && running {
			status = "NotReady"
			if conditions[corev1.PodReady].Status == corev1.ConditionTrue {
				status = "Running"
			}
		}
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && pod.Status.Reason == "NodeLost":
		status = "Unknown"
	case pod.DeletionTimestamp != nil && !ended:
		status = "Terminating"
	}
	return status, restarts
}

// initStatus returns the reason why the init containers are not completed, or an empty string if
// they are.
func initStatus(pod *corev1.Pod) (status string, sidecarRestarts, restarts int32) {
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		sidecars[container.Name] = container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	for i := range pod.Status.InitContainerStatuses {
		container := &pod.Status.InitContainerStatuses[i]
		restarts += container.RestartCount
		if sidecars[container.Name] {
			sidecarRestarts += container.RestartCount
		}
		switch state := &container.State; {
		case state.Terminated != nil && state.Terminated.ExitCode == 0:
			continue
		case sidecars[container.Name] && container.Started != nil && *container.Started:
			continue
		case state.Terminated != nil:
			return "Init:" + terminated(state.Terminated), sidecarRestarts, restarts
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
			return "Init:" + state.Waiting.Reason, sidecarRestarts, restarts
		default:
			return fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers)), sidecarRestarts, restarts
		}
	}
	return "", sidecarRestarts, restarts
}

func terminated(state *corev1.ContainerStateTerminated) string {
	switch {
	case state.Reason != "":
		return state.Reason
	case state.Signal != 0:
		return fmt.Sprintf("Signal:%d", state.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", state.ExitCode)
	}
}
