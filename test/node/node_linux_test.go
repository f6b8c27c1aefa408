package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// kubectl runs a Pod with kubectl, and returns its log.
func (s *site) kubectl(t *testing.T, name string, args ...string) string {
	t.Helper()
	pods := s.kube.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "kubectl", Image: "kubectl:dev", ImagePullPolicy: corev1.PullNever,
			Args: append([]string{"--cache-dir=/dev/shm"}, args...),
		}},
	}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the Pod "+name+" has ended", func(ctx context.Context) error {
		current, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil && current.Status.Phase != corev1.PodSucceeded && current.Status.Phase != corev1.PodFailed {
			err = fmt.Errorf("phase = %s, conditions = %v, containers = %v", current.Status.Phase, current.Status.Conditions, current.Status.ContainerStatuses)
		}
		return err
	})
	out, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestPods runs Pods of two clusters. They reach the kube-apiserver of their own cluster by its Service, and that of the
// other cluster by its address.
func TestPods(t *testing.T) {
	sites := startSites(t, "hub", "cluster1")
	hub, managed := sites[0], sites[1]
	managed.load(t, Image{Name: "kubectl:dev", Program: program(t, "kubectl"), Path: "/kubectl"})
	token := strings.TrimSpace(hub.run(t, "kubectl", "create", "token", "default"))
	const want = `"gitVersion": "v1.`
	for name, args := range map[string][]string{
		"own":   {"get", "--raw", "/version"},
		"other": {"--server=" + hub.AdminConfig().Host, "--insecure-skip-tls-verify", "--token=" + token, "get", "--raw", "/version"},
	} {
		if got := managed.kubectl(t, name, args...); !strings.Contains(got, want) {
			t.Errorf("kubectl %v in a Pod = %q, want %s", args, got, want)
		}
	}

	// A crash ends all containers, and the node starts again with its data.
	if err := managed.Node.Crash(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := managed.Node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := managed.kubectl(t, "again", "get", "--raw", "/version"); !strings.Contains(got, want) {
		t.Errorf("kubectl in a Pod after a crash of the node = %q, want %s", got, want)
	}
}
