package inventory

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	corev1 "k8s.io/api/core/v1"
)

// TestPodStatus checks that status and restarts equal the columns of kubectl.
func TestPodStatus(t *testing.T) {
	for _, test := range []struct {
		name, pod, status string
		restarts          int32
	}{
		{"pending", `{status: {phase: Pending}}`, "Pending", 0},
		{"evicted", `{status: {phase: Failed, reason: Evicted}}`, "Evicted", 0},
		{"gated", `{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated}]}}`, "SchedulingGated", 0},
		{"waiting", `{status: {phase: Pending, containerStatuses: [{restartCount: 2, state: {waiting: {reason: ImagePullBackOff}}}]}}`, "ImagePullBackOff", 2},
		{"first container decides", `{status: {phase: Running, containerStatuses: [{restartCount: 2, state: {waiting: {reason: A}}}, {restartCount: 3, state: {waiting: {reason: B}}}]}}`, "A", 5},
		{"completed", `{status: {phase: Succeeded, containerStatuses: [{state: {terminated: {exitCode: 0, reason: Completed}}}]}}`, "Completed", 0},
		{"one completed, one runs", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{state: {terminated: {exitCode: 0, reason: Completed}}}, {ready: true, state: {running: {}}}]}}`, "Running", 0},
		{"one completed, one is not ready", `{status: {phase: Running, containerStatuses: [{state: {terminated: {exitCode: 0, reason: Completed}}}, {ready: true, state: {running: {}}}]}}`, "NotReady", 0},
		{"exit code", `{status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 3}}}]}}`, "ExitCode:3", 0},
		{"signal", `{status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 137, signal: 9}}}]}}`, "Signal:9", 0},
		{"terminating", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Running}}`, "Terminating", 0},
		{"terminating, but done", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Succeeded}}`, "Succeeded", 0},
		{"node lost", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Running, reason: NodeLost}}`, "Unknown", 0},
		{"initializing", `{spec: {initContainers: [{name: a}, {name: b}]}, status: {phase: Pending, initContainerStatuses: [{name: a, state: {terminated: {exitCode: 0}}}, {name: b, state: {running: {}}}], containerStatuses: [{state: {waiting: {reason: PodInitializing}}}]}}`, "Init:1/2", 0},
		{"init fails", `{spec: {initContainers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{name: a, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}}]}}`, "Init:CrashLoopBackOff", 4},
		{"init error", `{spec: {initContainers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{name: a, restartCount: 1, state: {terminated: {exitCode: 1}}}]}}`, "Init:ExitCode:1", 1},
		{"sidecar", `{spec: {initContainers: [{name: a, restartPolicy: Always}]}, status: {phase: Running, conditions: [{type: Initialized, status: "True"}], initContainerStatuses: [{name: a, started: true, restartCount: 2, state: {running: {}}}], containerStatuses: [{restartCount: 1, ready: true, state: {running: {}}}]}}`, "Running", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := yaml.Unmarshal([]byte(test.pod), pod); err != nil {
				t.Fatal(err)
			}
			if status, restarts := podStatus(pod); status != test.status || restarts != test.restarts {
				t.Errorf("podStatus() = %s, %d restarts, want %s, %d restarts", status, restarts, test.status, test.restarts)
			}
		})
	}
}
