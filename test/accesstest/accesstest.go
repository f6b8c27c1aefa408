// Package accesstest connects the parts through which the RBAC of a cluster reaches the index of the hub: the reporter
// of the agent, the endpoint for reports, a search engine and the feed.
package accesstest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/access/feed"
	agent "open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// Cluster is the name of the cluster that reports.
const Cluster = "c1"

// Engines are functions that return a function that opens an engine, each time with the same data.
var Engines = map[string]func(testing.TB) func(context.Context) (search.Engine, error){
	"embedded": func(t testing.TB) func(context.Context) (search.Engine, error) {
		dir := t.TempDir()
		return func(context.Context) (search.Engine, error) { return embedded.Open(dir, embedded.Options{}) }
	},
	"postgres": func(t testing.TB) func(context.Context) (search.Engine, error) {
		options := postgres.Options{DSN: postgrestest.Start(t)}
		return func(ctx context.Context) (search.Engine, error) { return postgres.Open(ctx, options) }
	},
}

// Hub receives reports of clusters.
type Hub struct {
	open   func(context.Context) (search.Engine, error)
	server *httptest.Server

	mu sync.Mutex
	// index and reports are nil while the hub is stopped.
	index   *access.Index
	reports *ingest.Handler
	stop    func() error
}

// NewHub starts a hub.
func NewHub(t testing.TB, open func(context.Context) (search.Engine, error)) *Hub {
	t.Helper()
	h := &Hub{open: open}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	h.Start(t)
	t.Cleanup(func() { h.Stop(t) })
	return h
}

// Start starts the hub after Stop, with the same data and an empty index.
func (h *Hub) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	engine, err := h.open(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	reports, err := ingest.New(ingest.Config{
		Engine: engine, HubCluster: "local-cluster", Clusters: func() ([]string, error) { return []string{Cluster, "c2"}, nil },
		ClusterExists:  func(name string) bool { return name == Cluster || name == "c2" },
		ClusterDeleted: func(context.Context, string) (bool, error) { return false, nil },
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	index := access.New()
	f := feed.New(feed.Config{Engine: engine, Index: index, HubCluster: "local-cluster", States: reports.States})
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	running.Go(func() { reports.Run(ctx) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.index, h.reports = index, reports
	h.stop = func() error {
		cancel()
		running.Wait()
		return engine.Close()
	}
}

// Stop stops the hub. Reports fail until Start.
func (h *Hub) Stop(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	stop := h.stop
	h.index, h.reports, h.stop = nil, nil, nil
	h.mu.Unlock()
	if stop != nil {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// ServeHTTP receives a report.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	reports := h.reports
	h.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	if reports == nil || len(parts) < 3 {
		http.Error(w, "stopped", http.StatusServiceUnavailable)
		return
	}
	reports.Sync(parts[len(parts)-2]).ServeHTTP(w, r)
}

// Config returns the configuration of a client that sends reports.
func (h *Hub) Config() *rest.Config { return &rest.Config{Host: h.server.URL, QPS: -1} }

// Report runs the reporter of the agent for a cluster until stop is called or the test ends.
func (h *Hub) Report(t testing.TB, managed *rest.Config, configuration agent.Configuration, timing agent.Timing) (stop func()) {
	t.Helper()
	settings, err := configuration.Settings()
	if err != nil {
		t.Fatal(err)
	}
	managed = rest.CopyConfig(managed)
	managed.QPS = -1
	kube := framework.Must(kubernetes.NewForConfig(managed))(t)
	c := framework.Must(agent.New(agent.Config{
		Timing: timing, ClusterName: Cluster, Settings: settings, Hub: h.Config(),
		Metadata: framework.Must(metadata.NewForConfig(managed))(t), Dynamic: framework.Must(dynamic.NewForConfig(managed))(t),
		Discovery:     framework.Must(discovery.NewDiscoveryClientForConfig(managed))(t),
		Authorization: kube.AuthorizationV1(),
	}))(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() of the controller = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Ask decides a request of a subject on a cluster by the index.
func (h *Hub) Ask(cluster string, subject access.Subject, attributes access.Attributes) access.Answer {
	h.mu.Lock()
	index := h.index
	h.mu.Unlock()
	if index == nil {
		return access.Answer{Decision: access.Unknown, Reason: "stopped"}
	}
	return index.CanI(subject, attributes, []string{cluster}, 1)[0]
}

// ListSecrets decides whether a user may list Secrets in the namespace default.
func (h *Hub) ListSecrets(cluster, user string) access.Answer {
	return h.Ask(cluster, access.Subject{User: user}, access.Attributes{Verb: "list", Resource: "secrets", Namespace: metav1.NamespaceDefault})
}

// Await waits until ListSecrets returns a decision, with a reason that contains a text.
func (h *Hub) Await(t testing.TB, cluster, user string, decision access.Decision, reason string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("the decision about %s on %s is %s (%s)", user, cluster, decision, reason), func() error {
		if got := h.ListSecrets(cluster, user); got.Decision != decision || !strings.Contains(got.Reason, reason) {
			return fmt.Errorf("the decision is %s (%s)", got.Decision, got.Reason)
		}
		return nil
	})
}

// AwaitSoon waits until ListSecrets returns a decision, with short pauses, and returns the time that it took.
func (h *Hub) AwaitSoon(t testing.TB, user string, decision access.Decision) time.Duration {
	t.Helper()
	start := time.Now()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, await.Patience, true, func(context.Context) (bool, error) {
		return h.ListSecrets(Cluster, user).Decision == decision, nil
	})
	if err != nil {
		t.Fatalf("waiting until the decision about %s is %s: %v", user, decision, err)
	}
	return time.Since(start)
}

// Binding is a RoleBinding in the namespace default that allows a user to list Secrets.
func Binding(name, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}
