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

// hung keeps all requests with impersonation waiting until they are canceled.
type hung struct {
	// first is the name of the object in the first create request.
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

// testFairness checks an agent with many ManifestWorks of one executor, for which the cluster does not
// respond. The agent applies other ManifestWorks and completes deletions.
func testFairness(t *testing.T, c *cluster) {
	h := &hung{}
	c.onExchange(h.exchange)
	c.grant("configmaps", allVerbs)
	const flood = 40
	for i := range flood {
		c.create(fmt.Sprintf("-flood-%d", i), c.actsAs(), configMap(fmt.Sprintf("flood-%d", i), "one"))
	}
	c.run()
	var busy string
	eventually(t, "a create request of the executor hangs", func(context.Context) error {
		first := h.first.Load()
		if first == nil {
			return errors.New("the executor has sent no create request")
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

	// The order of the ManifestWorks in the queue varies, so that any of them can be the busy one.
	var waiting []string
	for i := range flood {
		if name := fmt.Sprintf("%s-flood-%d", c.name, i); name != busy {
			waiting = append(waiting, name)
		}
	}
	// Delete one ManifestWork with a hanging request, and one that waits for a worker.
	for _, name := range []string{busy, waiting[0]} {
		c.delete(name)
		c.gone(name)
	}

	if err := c.agent.Ready(); err != nil {
		t.Errorf("readiness while requests hang = %v, want nil", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A tenant gets another worker only if more than twice as many as it has are idle. With four
	// workers, this limits it to two.
	if h.most > 2 {
		t.Errorf("workers that were busy with one tenant = %d, want at most 2", h.most)
	}
}

// testTimeSlice checks that a pass or a removal that exceeds its time slice continues with the
// remaining objects in the next turn.
func testTimeSlice(t *testing.T, c *cluster) {
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
	// Every pass processes objects of kinds that cannot be watched.
	manifests = append(manifests, `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, metadata: {name: never}, spec: {nonResourceAttributes: {path: /, verb: get}}}`)
	name := c.create("", nil, manifests...)
	eventually(t, "the status contains all manifests", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := len(work.Status.ResourceStatus.Manifests); got != objects+1 {
			return fmt.Errorf("manifests in the status = %d, want %d", got, objects+1)
		}
		return nil
	})
	for i := range objects {
		c.hasConfigMap(fmt.Sprintf("a-%d", i), "one")
	}
	if asked, _ := g.since(0); len(asked) < objects {
		t.Errorf("passes = %d, want at least %d", len(asked), objects)
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
