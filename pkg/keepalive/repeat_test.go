package keepalive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// server is unavailable until it is told otherwise.
func server(t *testing.T) (client *http.Client, url string, available *atomic.Bool, requests *atomic.Int64) {
	t.Helper()
	available, requests = &atomic.Bool{}, &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		if !available.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	return &http.Client{Transport: Repeat(s.Client().Transport)}, s.URL, available, requests
}

func TestRepeat(t *testing.T) {
	client, url, available, requests := server(t)
	get := func(ctx context.Context, query string) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+query, nil)
		if err != nil {
			return 0, err
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	if code, err := get(t.Context(), "/objects/name"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("get of an object = %d, %v, want 503 at once", code, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := get(ctx, "/objects?watch=true"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("watch whose context ends = %v, want DeadlineExceeded", err)
	}

	// Many requests wait for one that tries.
	requests.Store(0)
	const count = 50
	var waiting sync.WaitGroup
	for i := range count {
		query := "/objects?resourceVersion=0"
		if i%2 == 0 {
			query = "/objects?watch=true"
		}
		waiting.Go(func() {
			if code, err := get(t.Context(), query); err != nil || code != http.StatusOK {
				t.Errorf("%s = %d, %v, want 200 after the server is available", query, code, err)
			}
		})
	}
	await.True(t, fmt.Sprintf("the server has received %d requests", count), func() bool { return requests.Load() >= count })
	first := requests.Load()
	available.Store(true)
	waiting.Wait()
	// Each request tried once, one request repeated it, and then all others did.
	if total := requests.Load(); first != count || total > 2*count+1 {
		t.Errorf("requests = %d before and %d in all, want %d and at most %d", first, total, count, 2*count+1)
	}
}

// TestRepeatAfterGivingUp checks that another request tries if the one that tries for all ends.
func TestRepeatAfterGivingUp(t *testing.T) {
	client, url, available, _ := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	first, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(first); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("Do() = %v, want the deadline", err)
	}
	available.Store(true)
	response, err := client.Get(url + "?watch=true")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("Get() = %v, %v, want 200", response, err)
	}
	_ = response.Body.Close()
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestRepeatUnauthorized checks that a request waits for a server that does not authenticate the hub, and gives up
// before its own token can be the reason.
func TestRepeatUnauthorized(t *testing.T) {
	for name, test := range map[string]struct {
		outage time.Duration
		status int
	}{
		"short": {20 * time.Second, http.StatusOK},
		"long":  {time.Hour, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := &http.Client{Transport: Repeat(transport(func(*http.Request) (*http.Response, error) {
					status := http.StatusOK
					if time.Since(began) < test.outage {
						status = http.StatusUnauthorized
					}
					return &http.Response{StatusCode: status, Body: http.NoBody}, nil
				}))}
				response, err := client.Get("http://hub/objects?watch=true")
				if err != nil || response.StatusCode != test.status {
					t.Fatalf("Get() = %v, %v, want %d", response, err, test.status)
				}
				_ = response.Body.Close()
				if took, limit := time.Since(began), min(test.outage, unauthorizedAtMost)+2*repeatPeriod; took > limit {
					t.Errorf("Get() took %s, want at most %s", took, limit)
				}
			})
		})
	}
}
