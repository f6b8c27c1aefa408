package agent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// gate is an Executors that returns the decision of the test and records its calls.
type gate struct {
	client dynamic.Interface
	// slice is the Slice of the controller.
	slice time.Duration

	mu      sync.Mutex
	refusal *work.Refusal
	asked   []work.AdmitRequest
}

func (g *gate) Admit(_ context.Context, request work.AdmitRequest) (dynamic.Interface, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, request)
	if g.refusal != nil {
		return nil, g.refusal
	}
	return g.client, nil
}

// refuse sets the refusal that Admit returns.
func (g *gate) refuse(refusal *work.Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = refusal
}

// since returns the requests after the first n, and the number of all requests.
func (g *gate) since(n int) ([]work.AdmitRequest, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[n:], len(g.asked)
}

// controller starts a ManifestWork controller with the gate as Executors.
func (c *cluster) controller(g *gate) (stop func()) {
	c.t.Helper()
	user, err := c.control.UserConfig(c.user())
	if err != nil {
		c.t.Fatal(err)
	}
	managed := rest.CopyConfig(c.account)
	for _, config := range []*rest.Config{user, managed} {
		config.QPS, config.Burst = -1, 0
	}
	config := work.Config{ClusterName: c.name, HubHash: agent.HubHash(c.config.Host), AgentID: c.name, Workers: 2, Slice: g.slice, Executors: g}
	if config.Hub, err = versioned.NewForConfig(user); err != nil {
		c.t.Fatal(err)
	}
	if config.Managed, err = versioned.NewForConfig(managed); err != nil {
		c.t.Fatal(err)
	}
	if config.Metadata, err = metadata.NewForConfig(managed); err != nil {
		c.t.Fatal(err)
	}
	if config.Discovery, err = discovery.NewDiscoveryClientForConfig(managed); err != nil {
		c.t.Fatal(err)
	}
	if g.client, err = dynamic.NewForConfig(managed); err != nil {
		c.t.Fatal(err)
	}
	controller, err := work.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				c.t.Errorf("Run() of the controller = %v, want nil", err)
			}
		case <-time.After(await.Patience):
			c.t.Error("Run() of the controller did not return after its context was canceled")
		}
	})
}

// testAdmission checks when passes call Admit: before the first request, before the first write of a
// later pass, and again while the ManifestWork is refused.
func testAdmission(t *testing.T, c *cluster) {
	// The agent installs the CRD of AppliedManifestWorks.
	c.run()
	eventually(t, "the agent is ready", func(context.Context) error { return c.agent.Ready() })
	c.kill()
	g := &gate{}
	defer c.controller(g)()
	name := c.create("", c.actsAs(), configMap("a", "one"), configMap("b", "one"))
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	asked, n := g.since(0)
	if first := asked[0]; first.Fresh || len(first.Targets) != 2 || first.Targets[0].Name != "a" || !first.Targets[0].Removed || first.Targets[0].Strategy != workv1.UpdateStrategyTypeUpdate {
		t.Errorf("first AdmitRequest = %+v, want 2 targets, of which a is Removed with strategy Update", first)
	}
	drift := func() {
		t.Helper()
		patch := []byte(`{"data":{"key":"drift"}}`)
		if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	drift()
	c.hasConfigMap("a", "one")
	if _, later := g.since(n); later == n {
		t.Error("calls of Admit before the repair of drift = 0, want at least 1")
	}

	g.refuse(&work.Refusal{Message: "as a whole", Manifests: map[int]string{1: "by itself"}})
	drift()
	refused := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if a, b := appliedOf(refused, 0).Message, appliedOf(refused, 1).Message; a != "as a whole" || b != "by itself" {
		t.Errorf("messages of manifests 0 and 1 = %q and %q, want %q and %q", a, b, "as a whole", "by itself")
	}
	c.hasConfigMap("a", "drift")
	g.refuse(nil)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("a", "one")
	c.delete(name)
	c.gone(name)
}
