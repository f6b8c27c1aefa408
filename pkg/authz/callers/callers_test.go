package callers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

func caller(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

func TestOf(t *testing.T) {
	const agents = "system:open-cluster-management:managed-clusters"
	for _, test := range []struct {
		user user.Info
		want string
	}{
		{caller("jane", "system:authenticated"), "user:jane"},
		{caller(""), "user:"},
		{caller("system:serviceaccount:ns:a"), "namespace:ns"},
		{caller("system:serviceaccount:ns:b"), "namespace:ns"},
		{caller("namespace:ns"), "user:namespace:ns"},
		{caller("cluster:c1"), "user:cluster:c1"},
		{caller("system:open-cluster-management:c1:a", agents, "system:open-cluster-management:c1"), "cluster:c1"},
		{caller("system:open-cluster-management:c1:b", "system:open-cluster-management:c1", agents), "cluster:c1"},
		{caller("arn:aws:iam::1:role/c1", "open-cluster-management:c1"), "cluster:c1"},
		{caller("many", "open-cluster-management:b", "open-cluster-management:a"), "cluster:a"},
		{caller("many", "open-cluster-management:a", "open-cluster-management:b"), "cluster:a"},
		{caller("addon", "system:open-cluster-management:cluster:c1:addon:x"), "user:addon"},
		{caller("nobody", "open-cluster-management:"), "user:nobody"},
	} {
		if got := Of(test.user); got != test.want {
			t.Errorf("Of(%s %v) = %q, want %q", test.user.GetName(), test.user.GetGroups(), got, test.want)
		}
	}
}

func TestBound(t *testing.T) {
	b := NewBound("watches", "max-watches-per-caller", 2, 30)
	var release []func()
	take := func(u user.Info) error {
		r, err := b.Take(u)
		if err == nil {
			release = append(release, r)
		}
		return err
	}
	a, other := caller("system:serviceaccount:ns:a"), caller("system:serviceaccount:ns:b")
	for _, u := range []user.Info{a, other} {
		if err := take(u); err != nil {
			t.Fatalf("Take(%s) = %v, want no error", u.GetName(), err)
		}
	}
	err := take(other)
	if !apierrors.IsTooManyRequests(err) {
		t.Fatalf("Take() over the limit = %v, want status 429", err)
	}
	for _, want := range []string{`namespace "ns"`, "2 open watches", "--max-watches-per-caller"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Take() over the limit = %q, want an error that contains %q", err, want)
		}
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 30 {
		t.Errorf("SuggestsClientDelay() = %d, %v, want 30", seconds, ok)
	}
	if err := take(caller("jane")); err != nil {
		t.Errorf("Take() of another caller = %v, want no error", err)
	}
	for range 5 {
		if err := take(caller("admin", user.SystemPrivilegedGroup)); err != nil {
			t.Errorf("Take() of system:masters = %v, want no error", err)
		}
	}
	release[0]()
	release[0]()
	if err := take(a); err != nil {
		t.Errorf("Take() after a release = %v, want no error", err)
	}
	if err := take(a); !apierrors.IsTooManyRequests(err) {
		t.Errorf("second Take() after a repeated release = %v, want status 429", err)
	}
	for _, r := range release {
		r()
	}
	if len(b.counts) != 0 {
		t.Errorf("counts after all releases = %v, want none", b.counts)
	}
	unlimited := NewBound("watches", "flag", 0, 1)
	for range 1000 {
		if _, err := unlimited.Take(a); err != nil {
			t.Fatalf("Take() without a limit = %v, want no error", err)
		}
	}
	if _, err := (*Bound)(nil).Take(a); err != nil {
		t.Errorf("Take() of a nil Bound = %v, want no error", err)
	}
}

func codecs() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
}

// TestLimit opens as many requests and watches as allowed. A request does not count as a watch, and
// a watch does not count as a request.
func TestLimit(t *testing.T) {
	hold, opened := make(chan struct{}), make(chan struct{})
	handler := Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hold") {
			opened <- struct{}{}
			<-hold
		}
	}), NewBound("requests", "r", 1, 1), NewBound("watches", "w", 1, 7), func(_ *http.Request, info *request.RequestInfo) bool {
		return info.Verb == "watch" || info.Verb == "upgrade"
	}, codecs())
	serve := func(u user.Info, verb, query string) *httptest.ResponseRecorder {
		ctx := request.WithUser(context.Background(), u)
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: "work.open-cluster-management.io", APIVersion: "v1"})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/x"+query, nil))
		return w
	}
	jane := caller("jane")
	done := make(chan struct{})
	for _, verb := range []string{"list", "watch"} {
		go func() {
			serve(jane, verb, "?hold")
			done <- struct{}{}
		}()
		<-opened
	}
	for verb, after := range map[string]string{"get": "1", "watch": "7"} {
		w := serve(jane, verb, "")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != after {
			t.Errorf("status of %s over the limit = %d with Retry-After %q, want 429 with %s", verb, w.Code, w.Header().Get("Retry-After"), after)
		}
		if w := serve(caller("joe"), verb, ""); w.Code != http.StatusOK {
			t.Errorf("status of %s of another caller = %d, want 200", verb, w.Code)
		}
	}
	if w := serve(jane, "upgrade", ""); w.Code != http.StatusOK {
		t.Errorf("status of an upgrade, which has no limit = %d, want 200", w.Code)
	}
	close(hold)
	<-done
	<-done
	if w := serve(jane, "list", ""); w.Code != http.StatusOK {
		t.Errorf("status of a list after the release = %d, want 200", w.Code)
	}
}

// TestUnreadWatch opens a watch that the client does not read, so that it is never initialized.
func TestUnreadWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			nil, nil, func(*http.Request, *request.RequestInfo) bool { return true }, codecs())
		signal := utilflowcontrol.NewInitializationSignal()
		ctx, stop := context.WithCancel(utilflowcontrol.WithInitializationSignal(t.Context(), signal))
		ctx = request.WithRequestInfo(request.WithUser(ctx, caller("jane")), &request.RequestInfo{IsResourceRequest: true, Verb: "watch"})
		var running sync.WaitGroup
		running.Go(func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/x", nil))
		})
		// Without the signal, Wait blocks and the test fails.
		signal.Wait()
		stop()
		running.Wait()
	})
}

func TestLimitURL(t *testing.T) {
	served := false
	handler := LimitURL(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), codecs())
	values := "a in (" + strings.Repeat("v,", 10_000) + "v)"
	for _, test := range []struct {
		name, path, query string
		want              string
	}{
		{"no query", "/apis", "", ""},
		{"a set of 10,000 values", "/apis", "labelSelector=" + values, ""},
		{"a set of 100,000 values", "/apis", "labelSelector=a in (" + strings.Repeat("v,", 100_000) + "v)", "labelSelector: Too long: may not be more than 65536 bytes"},
		{"requirements", "/apis", "labelSelector=" + strings.Repeat("!a,", 10_000) + "b", "labelSelector: Too many: 10001 requirements"},
		{"requirements between sets", "/apis", "labelSelector=" + strings.Repeat("a in (b,c),", 300) + "b", "labelSelector: Too many: 301 requirements"},
		{"the second of two selectors", "/apis", "labelSelector=a&labelSelector=" + strings.Repeat("a", 70_000), "labelSelector: Too long"},
		{"fields", "/apis", "fieldSelector=" + strings.Repeat("a=b,", 300) + "c=d", "fieldSelector: Too many: 301 requirements"},
		{"fields after a parenthesis", "/apis", "fieldSelector=a=(," + strings.Repeat("a=b,", 300) + "c=d", "fieldSelector: Too many: 302 requirements"},
		{"a continue token", "/apis", "continue=" + strings.Repeat("a", 20_000), "continue: Too long: may not be more than 16384 bytes"},
		{"another parameter", "/apis", "query=" + strings.Repeat("a,", 100_000), ""},
		{"a long path", "/apis/" + strings.Repeat("a", 5000), "", "the path of the URL has 5006 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			served = false
			r := httptest.NewRequest(http.MethodGet, test.path, nil)
			r.URL.RawQuery = strings.ReplaceAll(test.query, " ", "+")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			switch {
			case test.want == "" && !served:
				t.Errorf("LimitURL() = status %d, body %.300s, want the request to be served", w.Code, w.Body)
			case test.want != "" && (served || w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), test.want)):
				t.Errorf("LimitURL() = served %v, status %d, body %.300s, want status 400 and %s", served, w.Code, w.Body, test.want)
			}
		})
	}
}

// TestEndedWatchesOfUnreadClientsEnd checks that a watch that has ended does not wait for a client that does not read.
func TestEndedWatchesOfUnreadClientsEnd(t *testing.T) {
	written := make(chan error, 1)
	watches := Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		EndResponse(r.Context(), time.Now())
		_, err := w.Write(make([]byte, 64<<20))
		written <- err
	}), NewBound("requests", "f", 1, 1), NewBound("watches", "f", 1, 1), func(*http.Request, *request.RequestInfo) bool { return true }, nil)
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := request.WithRequestInfo(request.WithUser(r.Context(), caller("jane")), &request.RequestInfo{IsResourceRequest: true, Verb: "watch"})
			watches.ServeHTTP(w, r.WithContext(ctx))
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		response, err := server.Client().Get(server.URL)
		if err == nil {
			defer func() { _ = response.Body.Close() }()
		}
		if err := <-written; err == nil {
			t.Errorf("Write() after EndResponse() with HTTP/2 %t = nil, want an error", http2)
		}
		server.CloseClientConnections()
		server.Close()
	}
}
