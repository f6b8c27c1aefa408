package doctor

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestOutOfMemory checks that the doctor warns for a day after a container exceeded its memory limit, although it runs again.
func TestOutOfMemory(t *testing.T) {
	labels := map[string]string{"app": "server"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "server"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	for age, want := range map[time.Duration]string{time.Hour: cli.StateWarning, 25 * time.Hour: cli.StateOK} {
		ended := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.NewTime(time.Now().Add(-age))}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "server-1", Labels: labels}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", Ready: true, LastTerminationState: corev1.ContainerState{Terminated: ended}}}
		_, findings := deploymentFindings(t.Context(), fake.NewClientset(deployment, pod), "hub", "server")
		if len(findings) != 1 || findings[0].State != want || strings.Contains(findings[0].Cause, "OOMKilled") != (want == cli.StateWarning) {
			t.Errorf("deploymentFindings() %s after OOMKilled = %+v, want %s", age, findings, want)
		}
	}
}

// TestPreviousLog checks that the remedy of a Deployment names the log of the last run, if a container has restarted.
func TestPreviousLog(t *testing.T) {
	const namespace, name = "hub", "server"
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	for _, test := range []struct {
		name string
		last corev1.ContainerState
		want string
	}{
		{"started", corev1.ContainerState{}, "logs deployment/server"},
		{"restarted", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}, "logs deployment/server --previous"},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-1", Labels: labels},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: name, LastTerminationState: test.last}}},
		}
		_, findings := deploymentFindings(t.Context(), fake.NewClientset(deployment, pod), namespace, name)
		if len(findings) != 1 || !strings.HasSuffix(findings[0].Remedy, test.want) {
			t.Errorf("%s: deploymentFindings() = %+v, want one with the remedy %q", test.name, findings, test.want)
		}
	}
}
