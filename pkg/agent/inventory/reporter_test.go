package inventory

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// refusing is a hub that cannot store a resource, and rejects each report that contains it. While it is down, it rejects
// all reports.
type refusing struct {
	received
	uid string

	mu             sync.Mutex
	down           bool
	rejected, full int
}

func (h *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	report := &inventory.Sync{}
	body, err := gzip.NewReader(r.Body)
	if err == nil {
		err = json.NewDecoder(body).Decode(report)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if report.ClearAll {
		h.full++
	}
	if h.down || slices.ContainsFunc(report.AddResources, func(added inventory.Resource) bool { return added.UID == h.uid }) {
		h.rejected++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		status := apierrors.NewServiceUnavailable("the search engine cannot store reports").Status()
		status.Kind, status.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	_ = json.NewEncoder(w).Encode(h.apply(report))
}

func (h *refusing) set(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

func (h *refusing) awaits(t *testing.T, name string) {
	t.Helper()
	await.True(t, name+" is reported", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		_, ok := h.resources["c/"+name]
		return ok
	})
}

func (h *refusing) awaitRejected(t *testing.T, reports int) {
	t.Helper()
	await.True(t, "the hub rejects reports", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.rejected >= reports
	})
}

// reportTo starts a reporter to a hub, and returns its state and a function that adds an object.
func reportTo(t *testing.T, stored *refusing) (*state, func(name string)) {
	t.Helper()
	stored.received = received{resources: map[string]inventory.Resource{}, edges: map[inventory.Edge]bool{}}
	server := httptest.NewServer(stored)
	t.Cleanup(server.Close)
	hub, err := newHub(&rest.Config{Host: server.URL, QPS: -1}, "c")
	if err != nil {
		t.Fatal(err)
	}
	s := newState()
	put := func(name string) {
		s.put(&record{resource: core("pods", "Pod"), uid: "c/" + name, name: name, properties: []byte(`{"v":1}`)})
	}
	r := newReporter(s, hub, Timing{
		Settle: time.Millisecond, Interval: time.Millisecond, Heartbeat: 100 * time.Millisecond, Retry: time.Millisecond, MaxRetry: 20 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	put("first")
	stored.awaits(t, "first")
	return s, put
}

// TestRefusedChangesEnd checks that later changes are reported once the hub no longer has a reason to reject a report.
func TestRefusedChangesEnd(t *testing.T) {
	hub := &refusing{uid: "c/bad"}
	s, put := reportTo(t, hub)
	put("bad")
	hub.awaitRejected(t, 2)
	put("later")
	s.remove(core("pods", "Pod").GroupResource(), "c/bad")
	hub.awaits(t, "later")
}

// TestOutageCausesNoFullReport checks that only the changes are reported after an outage of more than one heartbeat.
func TestOutageCausesNoFullReport(t *testing.T) {
	hub := &refusing{}
	_, put := reportTo(t, hub)
	hub.set(true)
	put("second")
	hub.awaitRejected(t, 30)
	hub.set(false)
	hub.awaits(t, "second")
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if hub.full != 1 {
		t.Errorf("full reports = %d, want only the first one", hub.full)
	}
}
