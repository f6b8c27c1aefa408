package callers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"
)

// TestWritten writes up to the rates of single callers and of the namespace.
func TestWritten(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	w := NewWritten(WriteRates{Caller: Rate{100, 10}, Cluster: Rate{1000, 100}, Namespace: Rate{500, 50}}, "write-rates")
	w.clock = clock
	take := func(u user.Info, namespace string, bytes int64) (func(), error) {
		return w.Take(request.WithUser(context.Background(), u), namespace, bytes)
	}
	allowed := func(u user.Info, namespace string, bytes int64) {
		t.Helper()
		if _, err := take(u, namespace, bytes); err != nil {
			t.Errorf("Take(%s, %q, %d) = %v, want no error", u.GetName(), namespace, bytes, err)
		}
	}
	refusedFor := func(seconds int, u user.Info, namespace string, bytes int64) error {
		t.Helper()
		_, err := take(u, namespace, bytes)
		if got, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || got != seconds {
			t.Errorf("Take(%s, %q, %d) = %v with Retry-After %d, want status 429 with %d", u.GetName(), namespace, bytes, err, got, seconds)
		}
		return err
	}
	greedy, modest := caller("greedy"), caller("modest")
	agent := caller("system:open-cluster-management:c1:a", "system:open-cluster-management:c1")

	allowed(greedy, "c1", 100)
	allowed(greedy, "c1", 450)
	err := refusedFor(1, greedy, "c1", 100)
	for _, want := range []string{`user "greedy"`, `namespace "c1"`, "100 bytes at once", "10 bytes a second", "--write-rates"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Take() over the rate = %q, want an error that contains %q", err, want)
		}
	}
	// Other callers and other namespaces have their own rates.
	allowed(modest, "c1", 90)
	allowed(agent, "c1", 1000)
	allowed(greedy, "c2", 100)
	allowed(caller("admin", user.SystemPrivilegedGroup), "c1", 1<<40)
	refusedFor(1, modest, "c1", 60)
	refusedFor(60, greedy, "c1", 1<<30)

	clock.SetTime(clock.Now().Add(5 * time.Second))
	allowed(greedy, "c1", 50)
	allowed(agent, "c1", 500)

	// A reverted write does not count.
	undo, err := take(modest, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	allowed(modest, "", 100)
}

// TestWrittenMinimum makes small writes. Each counts as the minimum. Writes that exceed the rate are refused
// before the server reads them.
func TestWrittenMinimum(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	w := NewWritten(WriteRates{Caller: Rate{100, 10}, Cluster: Rate{100, 10}, Namespace: Rate{50, 5}, Minimum: 50}, "write-rates")
	w.clock = clock
	var served int
	handler := w.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }), func(info *request.RequestInfo) bool { return info.Verb != "delete" }, serializer.NewCodecFactory(runtime.NewScheme()))
	status := func(info request.RequestInfo, query string) int {
		t.Helper()
		info.IsResourceRequest, info.Namespace = true, "c1"
		ctx := request.WithUser(request.WithRequestInfo(context.Background(), &info), caller("greedy"))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodPatch, "/x"+query, nil))
		return recorder.Code
	}
	greedy := request.WithUser(context.Background(), caller("greedy"))
	for i := range 3 {
		if code := status(request.RequestInfo{Verb: "patch"}, ""); code != http.StatusOK {
			t.Errorf("status of write %d = %d, want 200", i, code)
		}
		if _, err := w.Take(greedy, "c1", 1); err != nil {
			t.Errorf("Take() of write %d = %v, want no error", i, err)
		}
	}
	if _, err := w.Take(greedy, "c1", 1); !apierrors.IsTooManyRequests(err) {
		t.Errorf("Take() of a fourth write = %v, want status 429", err)
	}
	served = 0
	for _, c := range []struct {
		info  request.RequestInfo
		query string
		want  int
	}{
		{request.RequestInfo{Verb: "patch"}, "", http.StatusTooManyRequests},
		{request.RequestInfo{Verb: "delete"}, "", http.StatusOK},
		{request.RequestInfo{Verb: "update", Subresource: "accept"}, "", http.StatusOK},
		{request.RequestInfo{Verb: "patch"}, "?dryRun=All", http.StatusOK},
	} {
		if code := status(c.info, c.query); code != c.want {
			t.Errorf("status of %s %s%s = %d, want %d", c.info.Verb, c.info.Subresource, c.query, code, c.want)
		}
	}
	if served != 3 {
		t.Errorf("served requests = %d, want 3", served)
	}
	clock.SetTime(clock.Now().Add(5 * time.Second))
	if code := status(request.RequestInfo{Verb: "patch"}, ""); code != http.StatusOK {
		t.Errorf("status of a write 5 s later = %d, want 200", code)
	}
}

func TestWrittenWithoutLimit(t *testing.T) {
	for name, w := range map[string]*Written{
		"none":      nil,
		"caller":    NewWritten(WriteRates{Namespace: Rate{1, 1}, Cluster: Rate{1, 1}}, "f"),
		"namespace": NewWritten(WriteRates{Caller: Rate{1, 1}, Cluster: Rate{1, 1}}, "f"),
	} {
		if _, err := w.Take(request.WithUser(context.Background(), caller("jane")), "c1", 1<<40); err != nil {
			t.Errorf("%s: Take() = %v, want no error", name, err)
		}
	}
}

// TestWrittenDropsBuckets checks that the number of buckets is bounded.
func TestWrittenDropsBuckets(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	w := NewWritten(WriteRates{Caller: Rate{100, 10}, Cluster: Rate{1, 1}, Namespace: Rate{100, 10}}, "f")
	w.clock = clock
	for i := range 100 * pruneAbove {
		clock.SetTime(clock.Now().Add(time.Second))
		if _, err := w.Take(request.WithUser(context.Background(), caller(strings.Repeat("x", i%5000))), "c", 50); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.buckets); n > 2*pruneAbove {
		t.Errorf("number of buckets = %d, want at most %d", n, 2*pruneAbove)
	}
}
