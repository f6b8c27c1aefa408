package inventory

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// refusing is a hub that cannot store a resource, and rejects each report that contains it.
type refusing struct {
	received
	uid string

	mu       sync.Mutex
	rejected int
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
	for _, added := range report.AddResources {
		if added.UID == h.uid {
			h.rejected++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			status := apierrors.NewServiceUnavailable("the search engine cannot store reports").Status()
			status.Kind, status.APIVersion = "Status", "v1"
			_ = json.NewEncoder(w).Encode(status)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(h.apply(report))
}

func (h *refusing) has(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.resources[uid]
	return ok
}

// TestRefusedChangesEnd checks that later changes are reported once the hub no longer has a reason to reject a report.
func TestRefusedChangesEnd(t *testing.T) {
	stored := &refusing{uid: "c/bad", received: received{resources: map[string]inventory.Resource{}, edges: map[inventory.Edge]bool{}}}
	server := httptest.NewServer(stored)
	defer server.Close()
	hub, err := newHub(&rest.Config{Host: server.URL}, "c")
	if err != nil {
		t.Fatal(err)
	}
	s, pod := newState(), core("pods", "Pod")
	put := func(name string) {
		s.put(&record{resource: pod, uid: "c/" + name, name: name, properties: []byte(`{"v":1}`)})
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
	defer func() {
		cancel()
		<-ended
	}()
	reported := func(name string) {
		t.Helper()
		await.True(t, name+" is reported", func() bool { return stored.has("c/" + name) })
	}
	put("first")
	reported("first")
	put("bad")
	await.True(t, "the hub rejects a report", func() bool {
		stored.mu.Lock()
		defer stored.mu.Unlock()
		return stored.rejected > 1
	})
	put("later")
	s.remove(pod.GroupResource(), "c/bad")
	reported("later")
}
