package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// hung answers no request for the objects of an executor.
type hung struct {
	// first is the name of the first object that was to be created.
	first atomic.Pointer[string]

	mu        sync.Mutex
	now, most int
}

func (h *hung) count(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += change
	h.most = max(h.most, h.now)
}

func (h *hung) exchange(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	if request.Header.Get("Impersonate-User") == "" {
		return send()
	}
	if request.Method == http.MethodPost {
		var object metav1.PartialObjectMetadata
		if err := json.NewDecoder(request.Body).Decode(&object); err != nil {
			return nil, err
		}
		h.first.CompareAndSwap(nil, &object.Name)
	}
	h.count(1)
	defer h.count(-1)
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// testFair: while a flood of works of one executor waits for a cluster that does not
// answer its requests, others are applied, deletions are finished and revocations take
// effect.
func testFair(t *testing.T, c *cluster) {
	h := &hung{}
	c.onExchange(h.exchange)
	c.grant("configmaps", allVerbs)
	const flood = 40
	for i := range flood {
		c.create(fmt.Sprintf("-flood-%d", i), c.actsAs(), configMap(fmt.Sprintf("flood-%d", i), "one"))
	}
	c.run()
	var busy string
	eventually(t, "workers hang", func(context.Context) error {
		first := h.first.Load()
		if first == nil {
			return errors.New("no request hangs")
		}
		busy = c.name + "-" + *first
		return nil
	})

	name := c.create("-admin", nil, configMap("admin", "one"))
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	c.replace(name, configMap("admin", "two"))
	c.hasConfigMap("admin", "two")

	role := c.name + ":pods"
	permission := c.permission("-permission", nil, clusterRole(role, "[get]"), clusterRoleBinding(role, role, "eve"))
	c.condition(permission, workv1.WorkApplied, metav1.ConditionTrue)
	c.bound(role, true)
	c.delete(permission)
	c.gone(permission)
	c.bound(role, false)

	// One whose request hangs, and one that waits for a worker.
	for _, name := range []string{busy, fmt.Sprintf("%s-flood-%d", c.name, flood-1)} {
		c.delete(name)
		c.gone(name)
	}

	if err := c.agent.Ready(); err != nil {
		t.Errorf("readiness while requests hang = %v, want nil", err)
	}
	c.revoke()
	for _, i := range []int{flood - 2, flood - 3} {
		refused := c.condition(c.name+fmt.Sprintf("-flood-%d", i), workv1.WorkApplied, metav1.ConditionFalse)
		if applied := appliedOf(refused, 0); applied.Message == "" {
			t.Errorf("work %d is refused without a message", i)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Four workers: the second of a tenant must leave one idle.
	if h.most > 2 {
		t.Errorf("%d workers were busy with one tenant, want 2 at most", h.most)
	}
}

// testSliced: a pass that has used its time goes on with the other objects in its next
// turn, and so does a removal.
func testSliced(t *testing.T, c *cluster) {
	c.run()
	eventually(t, "the agent is ready", func(context.Context) error { return c.agent.Ready() })
	c.kill()
	g := &gate{slice: time.Nanosecond}
	stop := c.controller(g)
	defer stop()
	const objects = 5
	var manifests []string
	for i := range objects {
		manifests = append(manifests, configMap(fmt.Sprintf("a-%d", i), "one"))
	}
	// A kind that cannot be watched is due in every pass.
	manifests = append(manifests, `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, metadata: {name: never}, spec: {nonResourceAttributes: {path: /, verb: get}}}`)
	name := c.create("", c.actsAs(), manifests...)
	eventually(t, "all objects are applied and reported", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := len(work.Status.ResourceStatus.Manifests); got != objects+1 {
			return fmt.Errorf("%d manifests are reported", got)
		}
		return nil
	})
	for i := range objects {
		c.hasConfigMap(fmt.Sprintf("a-%d", i), "one")
	}
	if asked, _ := g.since(0); len(asked) < objects {
		t.Errorf("%d passes were made, want one for each of %d objects at least", len(asked), objects)
	}
	got := c.hasConfigMap("a-0", "one")
	got.Data["key"] = "drift"
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.hasConfigMap("a-0", "one")
	c.delete(name)
	c.gone(name)
	for i := range objects {
		c.noConfigMap(fmt.Sprintf("a-%d", i))
	}
}
