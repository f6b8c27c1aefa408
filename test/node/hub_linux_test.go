package node

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/release"
)

// TestHub installs a hub and a managed cluster with the commands of README, on nodes that import the images, and measures
// how long events interrupt the hub.
func TestHub(t *testing.T) {
	sites := startSites(t, "hub", "cluster1")
	hub, managed := sites[0], sites[1]
	hub.createStorageClass(t)
	hub.addVolume(t, "data")

	r := release.New(t, map[string]*rest.Config{"hub": hub.AdminConfig(), "cluster1": managed.AdminConfig()}, fmt.Sprintf(`file=$(realpath "$5")
case $5 in
*-agent-*) exec %s "$file" ;;
*) exec %s "$file" ;;
esac
`, managed.importCommand(), hub.importCommand()))
	for name, path := range map[string]string{"hub-apiserver": "/apiserver", "hub-apiserver-agent": "/agent"} {
		image := Image{Name: release.Loaded + name + ":" + r.Version, Program: program(t, path[1:]), Path: path}
		if err := image.Write(r.Path(r.Image(name))); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	last := r.Follow(t)
	if want := "ClusterRole/view"; !strings.Contains(last, want) {
		t.Errorf("the last command of %s printed %q, want a ClusterRoleBinding with %s", release.AirGapped, last, want)
	}
	report(t, "from the release to the first ClusterPermission", time.Since(begin), 45*time.Second)

	t.Run("new bootstrap token", func(t *testing.T) { testNewToken(t, hub, managed) })
	for _, row := range []struct {
		name string
		bar  time.Duration
		act  func(t *testing.T, server *corev1.Pod)
	}{
		{"rollout restart", 5 * time.Second, func(t *testing.T, _ *corev1.Pod) {
			hub.run(t, "kubectl", "rollout", "restart", "deployment/hub-apiserver", "--namespace="+hubNamespace)
		}},
		{"SIGKILL", 4 * time.Second, func(t *testing.T, server *corev1.Pod) {
			container := strings.TrimPrefix(server.Status.ContainerStatuses[0].ContainerID, "containerd://")
			if _, err := hub.Node.Run(t.Context(), "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container); err != nil {
				t.Fatal(err)
			}
		}},
		{"deleted Pod", 5 * time.Second, func(t *testing.T, server *corev1.Pod) {
			hub.run(t, "kubectl", "delete", "pod", server.Name, "--namespace="+hubNamespace, "--wait=false")
		}},
		{"crash of the node", 20 * time.Second, func(t *testing.T, _ *corev1.Pod) {
			if err := errors.Join(hub.Node.Crash(), hub.Node.Start(t.Context())); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			down, first := hub.outage(t, row.act)
			t.Logf("first error: %v", first)
			report(t, row.name+", requests failed for", down, row.bar)
		})
	}
}

// importCommand returns the command of a shell that imports the archive of its last argument on the node.
func (s *site) importCommand() string {
	return strings.Join(s.Node.Command("ctr", "--namespace", "k8s.io", "images", "import"), " ")
}

// requests are requests through the hub, one after the other.
type requests struct {
	mu   sync.Mutex
	down time.Duration
	// since is the time of the first request since which all have failed, and failed that of the last one that did.
	since, failed time.Time
	first         error
}

func (r *requests) add(begin time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.first, r.failed = cmp.Or(r.first, err), time.Now()
		if r.since.IsZero() {
			r.since = begin
		}
		return
	}
	if !r.since.IsZero() {
		r.down += begin.Sub(r.since)
		r.since = time.Time{}
	}
}

// quiet returns an error if a request failed in the last seconds.
func (r *requests) quiet() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.failed) < 3*time.Second {
		return fmt.Errorf("a request failed within 3 seconds, the first one: %w", r.first)
	}
	return nil
}

// outage returns for how long requests to the server fail because of an event that replaces its container, and the first
// error.
func (s *site) outage(t *testing.T, act func(t *testing.T, server *corev1.Pod)) (time.Duration, error) {
	t.Helper()
	server := s.server(t, "")
	ctx, stop := context.WithCancel(t.Context())
	var all requests
	var client sync.WaitGroup
	client.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			begin := time.Now()
			attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := s.ocm.ClusterV1().ManagedClusters().List(attempt, metav1.ListOptions{})
			cancel()
			if ctx.Err() == nil {
				all.add(begin, err)
			}
		}, 20*time.Millisecond)
	})
	defer client.Wait()
	defer stop()
	begin := time.Now()
	act(t, server)
	after := s.server(t, server.Status.ContainerStatuses[0].ContainerID)
	await.Eventually(t, "requests succeed", all.quiet)
	stop()
	client.Wait()
	log := s.run(t, "kubectl", "logs", after.Name, "--namespace="+hubNamespace, "--timestamps")
	for _, step := range []string{`"Starting hub-apiserver"`, "Serving securely"} {
		if before, _, found := strings.Cut(log, step); found {
			line := before[1+strings.LastIndex(before, "\n"):]
			at, _ := time.Parse(time.RFC3339Nano, strings.Fields(line)[0])
			t.Logf("%s after %.1f s", step, at.Sub(begin).Seconds())
		}
	}
	t.Logf("the last request failed after %.1f s", all.failed.Sub(begin).Seconds())
	return all.down, all.first
}

// testNewToken measures when an agent uses a new bootstrap token, after the old one has become invalid while it waited to
// be accepted.
func testNewToken(t *testing.T, hub, managed *site) {
	const namespace, account, cluster = "--namespace=open-cluster-management", "agent-registration-bootstrap", "cluster2"
	join := func() {
		token := strings.TrimSpace(hub.run(t, "kubectl", "create", "token", account, namespace, "--duration=1h"))
		managed.run(t, "clusteradm", "join", "--hub-token="+token, "--hub-apiserver="+hub.AdminConfig().Host,
			"--ca-data="+base64.StdEncoding.EncodeToString(hub.AdminConfig().CAData), "--cluster-name="+cluster, "--wait")
	}
	managed.run(t, "clusteradm", "unjoin", "--cluster-name=cluster1")
	managed.run(t, "kubectl", "wait", "--for=delete", "namespace/"+agentNamespace, "--timeout=1m")
	join()
	hub.run(t, "kubectl", "delete", "serviceaccount", account, namespace)
	hub.run(t, "kubectl", "create", "serviceaccount", account, namespace)
	await.Eventually(t, "the hub denies the agent", func(context.Context) error {
		if log := managed.run(t, "kubectl", "logs", "deployment/agent", "--namespace="+agentNamespace); !strings.Contains(log, "Unauthorized") {
			return errors.New("its log does not say so")
		}
		return nil
	})
	hub.run(t, "kubectl", "delete", "managedcluster", cluster)
	begin := time.Now()
	join()
	report(t, "a new bootstrap token acts", time.Since(begin), 5*time.Second)
}
