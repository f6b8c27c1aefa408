package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// patience bounds every wait of the tests.
const patience = time.Minute

// managed is a real cluster.
type managed struct {
	config  *rest.Config
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

func newManaged(t testing.TB) *managed {
	t.Helper()
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "managed", Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := &managed{config: rest.CopyConfig(cluster.AdminConfig())}
	m.config.QPS, m.config.Burst = -1, 0
	if m.kube, err = kubernetes.NewForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	if m.dynamic, err = dynamic.NewForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	return m
}

// quick is a timing that does not make tests wait.
func quick() timing {
	return timing{
		settle: 10 * time.Millisecond, interval: 50 * time.Millisecond, jitter: 0.1, heartbeat: patience,
		retry: 50 * time.Millisecond, maxRetry: 200 * time.Millisecond, absent: 50 * time.Millisecond, maxAbsent: 200 * time.Millisecond,
		discover: patience, patience: patience,
	}
}

// run starts a controller that reports a cluster, until stop or the end of the test.
func (m *managed) run(t testing.TB, cluster string, hub *endpoint, configuration Configuration) (c *Controller, stop func()) {
	t.Helper()
	return m.runTimed(t, cluster, hub, configuration, quick())
}

// runTimed is run with a timing of its own.
func (m *managed) runTimed(t testing.TB, cluster string, hub *endpoint, configuration Configuration, timing timing) (c *Controller, stop func()) {
	t.Helper()
	settings, err := configuration.Settings()
	if err != nil {
		t.Fatal(err)
	}
	config := Config{ClusterName: cluster, APIEndpoint: m.config.Host, Settings: settings, Hub: hub.config(), Dynamic: m.dynamic}
	if config.Metadata, err = metadata.NewForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	if config.Discovery, err = discovery.NewDiscoveryClientForConfig(m.config); err != nil {
		t.Fatal(err)
	}
	if c, err = newController(config, timing); err != nil {
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
				t.Errorf("controller: %v", err)
			}
		case <-time.After(patience):
			t.Error("the controller does not stop")
		}
	}
	t.Cleanup(stop)
	return c, stop
}

// eventually polls until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

// apply creates objects, and their status if they have any. NS stands for a namespace.
// It returns their UIDs by name.
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
			t.Fatalf("%s: %v", text, err)
		}
		uids[created.GetName()] = string(created.GetUID())
		if status != nil {
			created.Object["status"] = status
			if _, err := client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("status of %s: %v", text, err)
			}
		}
	}
	return uids
}

// namespace creates a namespace.
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
	eventually(t, "the hub has "+kind+" "+name, func() error {
		_, got := e.find(kind, name)
		if got == nil {
			return fmt.Errorf("there is none")
		}
		for property, value := range want {
			if fmt.Sprint(got[property]) != fmt.Sprint(value) {
				return fmt.Errorf("%s is %v, not %v", property, got[property], value)
			}
		}
		return nil
	})
}

// lacks waits until the hub has no object of a kind and name.
func (e *endpoint) lacks(t testing.TB, kind, name string) {
	t.Helper()
	eventually(t, "the hub has no "+kind+" "+name, func() error {
		if uid, _ := e.find(kind, name); uid != "" {
			return fmt.Errorf("it has %s", uid)
		}
		return nil
	})
}

// relates waits until the hub has some edges and does not have others.
func (e *endpoint) relates(t testing.TB, want, not []string) {
	t.Helper()
	eventually(t, "the edges are there", func() error {
		got := e.relations()
		for _, edge := range want {
			if !got[edge] {
				return fmt.Errorf("no %q in %q", edge, slices.Sorted(maps.Keys(got)))
			}
		}
		for _, edge := range not {
			if got[edge] {
				return fmt.Errorf("there is still %q", edge)
			}
		}
		return nil
	})
}

// agrees waits until the hub has what the controller has, and nothing is pending.
func (e *endpoint) agrees(t testing.TB, c *Controller) {
	t.Helper()
	eventually(t, "the hub has what the cluster has", func() error {
		resources, edges := c.reporter.state.size()
		e.mu.Lock()
		defer e.mu.Unlock()
		if !c.Synced() || !c.reporter.state.idle() || len(e.resources) != resources || len(e.edges) != edges {
			return fmt.Errorf("it has %d and %d, not %d and %d", len(e.resources), len(e.edges), resources, edges)
		}
		return nil
	})
}
