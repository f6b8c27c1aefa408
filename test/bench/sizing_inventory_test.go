package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// agentSizes are the numbers of resources of the managed cluster of BenchmarkAgentSizing.
var agentSizes = []int{1_000, 10_000, 50_000}

// changesPerSecond is the number of Pods that change in a second in steady state.
const changesPerSecond = 5

// BenchmarkAgentSizing measures the resources that the agent needs on clusters with many resources: a separate
// process, on a real API server. Half of the resources are Pods, whose complete objects the agent reads. The others
// are ConfigMaps and Secrets of 1 KiB. docs/design/sizing.md contains the figures.
func BenchmarkAgentSizing(b *testing.B) {
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, "agent-sizing")
	}
	f, err := localhub.NewFleet(localhub.FleetOptions{Dir: dir, Clusters: []string{cluster1}, NoFsync: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := f.Start(ctx); err != nil {
		b.Fatal(err)
	}
	managed, err := kubernetes.NewForConfig(f.Members[0].AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	sizes := agentSizes
	if os.Getenv("SIZING_AGENT_RESOURCES") != "" {
		sizes = []int{number(b, "SIZING_AGENT_RESOURCES", 1)}
	}
	period := time.Duration(number(b, "SIZING_SECONDS", 120)) * time.Second
	created := 0
	var lines strings.Builder
	for _, size := range sizes {
		first := created
		inParallel(b, size-first, func(i int) error { return createResource(b.Context(), managed, first+i) })
		created = size
		fmt.Fprintln(&lines, measureAgent(b, f.Members[0].Agent, managed, size, period))
	}
	fmt.Println("| resources | memory, steady | memory, peak | CPU to start | CPU, steady | ready after |")
	fmt.Println("|---|---|---|---|---|---|")
	fmt.Print(lines.String())
}

// createResource creates the i-th resource of the managed cluster.
func createResource(ctx context.Context, client *kubernetes.Clientset, i int) error {
	meta := metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "sizing-" + strconv.Itoa(i),
		Labels: map[string]string{"app.kubernetes.io/name": "app-" + strconv.Itoa(i%50), "app.kubernetes.io/instance": "app-" + strconv.Itoa(i), "team": "team-" + strconv.Itoa(i%7)},
	}
	content := strings.Repeat("x", 1024)
	var err error
	switch i % 4 {
	case 0:
		_, err = client.CoreV1().ConfigMaps(meta.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config": content}}, metav1.CreateOptions{})
	case 1:
		_, err = client.CoreV1().Secrets(meta.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"secret": content}}, metav1.CreateOptions{})
	default:
		_, err = client.CoreV1().Pods(meta.Namespace).Create(ctx, sizingPod(meta), metav1.CreateOptions{})
	}
	return err
}

// sizingPod returns a Pod with two containers, of about 4 KiB as it is stored.
func sizingPod(meta metav1.ObjectMeta) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta}
	for port, name := range []string{"app", "proxy"} {
		container := corev1.Container{
			Name: name, Image: "registry.example.com/" + name + ":v1.2.3", Args: []string{"--config=/etc/config/config.yaml", "--v=2"},
			Ports:     []corev1.ContainerPort{{Name: name, ContainerPort: int32(8080 + port)}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
		}
		for i := range 8 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "the value of a setting"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

// measureAgent restarts the agent and measures it, first while it lists and reports all resources, and then while
// Pods change.
func measureAgent(b *testing.B, agent *localhub.Agent, managed *kubernetes.Clientset, resources int, period time.Duration) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), sizingPatience+2*period)
	defer cancel()
	if err := agent.Stop(ctx); err != nil {
		b.Fatal(err)
	}
	started := time.Now()
	if err := agent.Launch(ctx); err != nil {
		b.Fatal(err)
	}
	memory := sampleMemory(agent.PID())
	defer memory.stop()
	if err := agent.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	ready, began := time.Since(started), processorTime(b, agent.PID())

	changing, stop := context.WithCancel(ctx)
	defer stop()
	changes := changePods(changing, b, managed, resources)
	select {
	case <-time.After(period):
	case <-agent.Exited():
		b.Fatal(agent.Failure())
	}
	_, peak := memory.take()
	before, count := processorTime(b, agent.PID()), changes.Load()
	select {
	case <-time.After(period):
	case <-agent.Exited():
		b.Fatal(agent.Failure())
	}
	cores := (processorTime(b, agent.PID()) - before).Seconds() / period.Seconds()
	steady, later := memory.take()
	fmt.Printf("agent of a cluster with %d resources: %.1f changes a second\n", resources, float64(changes.Load()-count)/period.Seconds())
	return fmt.Sprintf("| %d | %.0f MiB | %.0f MiB | %.1f s | %.3f cores | %.1f s |", resources, steady, max(peak, later), began.Seconds(), cores, ready.Seconds())
}

// changePods changes the labels of Pods until ctx ends, and counts the changes.
func changePods(ctx context.Context, b *testing.B, client *kubernetes.Clientset, resources int) *atomic.Int64 {
	changes := &atomic.Int64{}
	go func() {
		tick := time.NewTicker(time.Second / changesPerSecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			name := "sizing-" + strconv.Itoa(i*4%resources/4*4+2)
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%d"}}}`, i)
			if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				if ctx.Err() == nil {
					b.Error(err)
				}
				return
			}
			changes.Add(1)
		}
	}()
	return changes
}
