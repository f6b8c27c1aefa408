package doctor

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

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
