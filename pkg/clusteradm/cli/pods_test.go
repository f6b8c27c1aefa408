package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
)

// TestWaitNamesTheCause checks that init --wait prints why the Pods of a Deployment do not run, and the remedy, within 10
// seconds and once, and that its error contains both.
func TestWaitNamesTheCause(t *testing.T) {
	const namespace, name = "hub", "server"
	container := func(waiting string, ended *corev1.ContainerStateTerminated) corev1.PodStatus {
		status := corev1.ContainerStatus{Name: name, Image: "registry.example.com/server:v1", LastTerminationState: corev1.ContainerState{Terminated: ended}}
		if waiting != "" {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: waiting, Message: "not found"}
		}
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{status}}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", UID: "1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Reason: "FailedBinding", Message: "no storage class is set", InvolvedObject: corev1.ObjectReference{UID: "1"}}
	mount := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no Secret"}
	provisioning := event.DeepCopy()
	provisioning.Reason, provisioning.Message, provisioning.Type = "ProvisioningFailed", "no quota", corev1.EventTypeWarning
	unscheduled := func(message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}}
	}
	for cause, test := range map[string]struct {
		status       corev1.PodStatus
		failure      string
		other        []runtime.Object
		want, remedy string
	}{
		"unbound claim":                         {corev1.PodStatus{Phase: corev1.PodPending}, "", []runtime.Object{claim, event}, "PersistentVolumeClaim data is not bound: FailedBinding: no storage class is set", "--storage-class"},
		"missing Secret volume":                 {corev1.PodStatus{Phase: corev1.PodPending}, "", []runtime.Object{mount}, "it does not start: FailedMount: no Secret", "correct"},
		"crash":                                 {container("CrashLoopBackOff", &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "a\nno etcd\n"}), "", nil, "container server ended with exit code 1: no etcd", "logs deployment/server --previous"},
		"unwritable":                            {container("CrashLoopBackOff", &corev1.ContainerStateTerminated{ExitCode: 1, Message: "mkdir /data: permission denied"}), "", nil, "mkdir /data: permission denied", "install.md#volumes"},
		"missing image":                         {container("ImagePullBackOff", nil), "", nil, "the image registry.example.com/server:v1 cannot be pulled: ImagePullBackOff: not found", "--image-registry"},
		"missing Secret":                        {container("CreateContainerConfigError", nil), "", nil, "CreateContainerConfigError: not found", "correct"},
		"out of memory":                         {container("", &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}), "", nil, "container server was OOMKilled at its memory limit", "--resource-limits"},
		"unschedulable":                         {unscheduled("Insufficient cpu"), "", []runtime.Object{bound(claim)}, "cannot be scheduled: Insufficient cpu", "--resource-requests"},
		"no room, claim that waits for the Pod": {unscheduled("Insufficient cpu"), "", []runtime.Object{claim}, "cannot be scheduled: Insufficient cpu", "--resource-requests"},
		"no volume":                             {unscheduled("pod has unbound immediate PersistentVolumeClaims"), "", []runtime.Object{claim}, "PersistentVolumeClaim data is not bound", "--storage-class"},
		"broken provisioner":                    {corev1.PodStatus{Phase: corev1.PodPending}, "", []runtime.Object{claim, provisioning}, "is not bound: ProvisioningFailed: no quota", "describe pvc data"},
		"quota":                                 {corev1.PodStatus{}, "exceeded quota: pods=0", nil, "no Pod can be created: exceeded quota: pods=0", "raise a ResourceQuota"},
	} {
		t.Run(cause, func(t *testing.T) {
			labels := map[string]string{"app": name}
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "server-1", Labels: labels}, Status: test.status}
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			if test.failure != "" {
				deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: test.failure}}
			}
			kube := fake.NewClientset(append(test.other, deployment, pod)...)
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := Environment{IOStreams: genericiooptions.IOStreams{ErrOut: &out}}.WaitForDeployment(ctx, kube, namespace, name)
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.remedy) {
					t.Errorf("WaitForDeployment() = %v, want an error with %q and %q", err, test.want, test.remedy)
				}
				if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) || !strings.Contains(got, test.remedy) {
					t.Errorf("WaitForDeployment() printed within 10s\n%s\nwant one line with %q and %q", got, test.want, test.remedy)
				}
			})
		})
	}
}

func bound(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	claim = claim.DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	return claim
}
