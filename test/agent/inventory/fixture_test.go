package inventory_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/test/await"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// managed is a real cluster.
type managed struct {
	config  *rest.Config
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

func TestMain(m *testing.M) { os.Exit(framework.RunReserved(m, 1, 1)) }

// sharedManaged starts the cluster that the tests share, at the first call.
var sharedManaged = sync.OnceValues(func() (*managed, error) {
	dir, err := framework.TempDir()
	if err != nil {
		return nil, err
	}
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "managed", Dir: dir, NoFsync: true})
	if err != nil {
		return nil, err
	}
	framework.StopAtEnd(func(context.Context) error { return cluster.Kill() })
	if err := cluster.Start(context.Background()); err != nil {
		return nil, err
	}
	m := &managed{config: rest.CopyConfig(cluster.AdminConfig())}
	m.config.QPS, m.config.Burst = -1, 0
	if m.kube, err = kubernetes.NewForConfig(m.config); err != nil {
		return nil, err
	}
	m.dynamic, err = dynamic.NewForConfig(m.config)
	return m, err
})

// quick returns a timing with short intervals.
func quick() inventory.Timing {
	return inventory.Timing{
		Settle: 10 * time.Millisecond, Interval: 50 * time.Millisecond, Jitter: 0.1, Heartbeat: await.Patience,
		Retry: 50 * time.Millisecond, MaxRetry: 200 * time.Millisecond, Absent: 50 * time.Millisecond, MaxAbsent: 200 * time.Millisecond,
		Discover: await.Patience, Patience: await.Patience,
	}
}

// run starts a controller that reports a cluster until stop is called or the test ends.
func (m *managed) run(t testing.TB, cluster string, hub *endpoint, configuration inventory.Configuration) (c *inventory.Controller, stop func()) {
	t.Helper()
	return m.runTimed(t, cluster, hub, configuration, quick())
}

// runTimed is like run, with the given timing.
func (m *managed) runTimed(t testing.TB, cluster string, hub *endpoint, configuration inventory.Configuration, timing inventory.Timing) (c *inventory.Controller, stop func()) {
	t.Helper()
	settings, err := configuration.Settings()
	if err != nil {
		t.Fatal(err)
	}
	config := inventory.Config{Timing: timing, ClusterName: cluster, Settings: settings, Hub: hub.config(), Dynamic: m.dynamic}
	if config.Metadata, err = metadata.NewForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	if config.Discovery, err = discovery.NewDiscoveryClientForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(m.config)
	if err != nil {
		t.Fatal(err)
	}
	config.Authorization = kube.AuthorizationV1()
	if c, err = inventory.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run() of the controller = %v, want nil", err)
			}
		case <-time.After(await.Patience):
			t.Error("Run() of the controller did not return after its context was canceled")
		}
	}
	t.Cleanup(stop)
	return c, stop
}

// apply creates objects and writes their status if they have one. It returns their UIDs by name. NS is
// a placeholder for the namespace.
func (m *managed) apply(t testing.TB, namespace string, resource schema.GroupVersionResource, texts ...string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for _, text := range texts {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", namespace)), &object.Object); err != nil {
			t.Fatal(err)
		}
		client := dynamic.ResourceInterface(m.dynamic.Resource(resource))
		if object.GetNamespace() != "" {
			client = m.dynamic.Resource(resource).Namespace(object.GetNamespace())
		}
		status := object.Object["status"]
		created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Create(%s) = %v, want nil", text, err)
		}
		uids[created.GetName()] = string(created.GetUID())
		if status != nil {
			created.Object["status"] = status
			if _, err := client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("UpdateStatus(%s) = %v, want nil", text, err)
			}
		}
	}
	return uids
}

// namespace creates a namespace and returns its name.
func (m *managed) namespace(t testing.TB, name string) string {
	t.Helper()
	m.apply(t, name, v1("namespaces"), `{apiVersion: v1, kind: Namespace, metadata: {name: NS}}`)
	return name
}

func v1(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: plural}
}

func v1of(group, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// has waits until the hub has an object with certain properties.
func (e *endpoint) has(t testing.TB, kind, name string, want map[string]any) {
	t.Helper()
	await.Eventually(t, "the hub has "+kind+" "+name, func() error {
		_, got := e.find(kind, name)
		if got == nil {
			return fmt.Errorf("the hub has no such object")
		}
		for property, value := range want {
			if fmt.Sprint(got[property]) != fmt.Sprint(value) {
				return fmt.Errorf("property %s = %v, want %v", property, got[property], value)
			}
		}
		return nil
	})
}

// lacks waits until the hub has no object of a kind and name.
func (e *endpoint) lacks(t testing.TB, kind, name string) {
	t.Helper()
	await.Eventually(t, "the hub has no "+kind+" "+name, func() error {
		if uid, _ := e.find(kind, name); uid != "" {
			return fmt.Errorf("the hub has it with UID %s", uid)
		}
		return nil
	})
}

// relates waits until the hub has some edges and does not have others.
func (e *endpoint) relates(t testing.TB, want, not []string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("the hub has the edges %q and not %q", want, not), func() error {
		got := e.relations()
		for _, edge := range want {
			if !got[edge] {
				return fmt.Errorf("edges = %q, want %q", slices.Sorted(maps.Keys(got)), edge)
			}
		}
		for _, edge := range not {
			if got[edge] {
				return fmt.Errorf("the hub has the edge %q", edge)
			}
		}
		return nil
	})
}

// agrees waits until the hub has as many objects and edges as the controller, and the controller has
// no pending changes.
func (e *endpoint) agrees(t testing.TB, c *inventory.Controller) {
	t.Helper()
	await.Eventually(t, "the hub has as many objects and edges as the agent", func() error {
		backlog := c.Backlog()
		e.mu.Lock()
		defer e.mu.Unlock()
		if !c.Synced() || backlog.Changed+backlog.Deleted > 0 || len(e.resources) != backlog.Objects || len(e.edges) != backlog.Edges {
			return fmt.Errorf("the hub has %d objects and %d edges, Synced() = %t, Backlog() = %+v", len(e.resources), len(e.edges), c.Synced(), backlog)
		}
		return nil
	})
}
