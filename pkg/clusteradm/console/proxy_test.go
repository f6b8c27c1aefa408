package console

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// TestConsoleRequestsEnd checks that a request of the page ends after 70 seconds if the hub does not answer, and that a
// watch does not.
func TestConsoleRequestsEnd(t *testing.T) {
	for path, want := range map[string]struct {
		after time.Duration
		code  int
	}{
		"/apis/search.open-cluster-management.io/v1alpha1/fleetresources":              {70 * time.Second, http.StatusGatewayTimeout},
		"/apis/search.open-cluster-management.io/v1alpha1/fleetresources?watch=1":      {time.Hour, http.StatusGatewayTimeout},
		"/apis/cluster.open-cluster-management.io/v1/managedclusters/cluster1?watch=0": {70 * time.Second, http.StatusGatewayTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := newProxy(&rest.Config{Host: "https://hub.example.com", Transport: hangingHub{}}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			request, recorder := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx), httptest.NewRecorder()
			began := time.Now()
			p.serveHub(recorder, request, request.URL.Path)
			if took := time.Since(began); took != want.after || recorder.Code != want.code {
				t.Errorf("GET %s with a hub that hangs = %d after %s, want %d after %s", path, recorder.Code, took, want.code, want.after)
			}
		})
	}
}

// TestConsoleRefusesOtherPages checks that only the page of the console can use the proxy, and that its URL works once.
func TestConsoleRefusesOtherPages(t *testing.T) {
	p, err := newProxy(&rest.Config{Host: "https://hub.example.com"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	send := func(path, host, header, value string) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Host = host
		if header != "" {
			request.Header.Set(header, value)
		}
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, request)
		return answer.Code
	}
	const own = "127.0.0.1:8080"
	for _, c := range []struct{ host, header, value string }{
		{host: "attacker.example:8080"},
		{host: "127.0.0.1.attacker.example:8080"},
		{host: "127.0.0.1:8081"},
		{host: "127.0.0.1"},
		{own, "Sec-Fetch-Site", "cross-site"},
		{own, "Sec-Fetch-Site", "same-site"},
		{own, "Origin", "http://127.0.0.1:8081"},
		{own, "Origin", "null"},
	} {
		if code := send("/"+p.token, c.host, c.header, c.value); code != http.StatusForbidden {
			t.Errorf("GET of the URL of the console with host %s and %s %s = %d, want 403", c.host, c.header, c.value, code)
		}
	}
	for _, path := range []string{"/", "/x", "/apis"} {
		if code := send(path, own, "", ""); code != http.StatusForbidden {
			t.Errorf("GET %s = %d, want 403", path, code)
		}
	}
	for i, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		if code := send("/"+p.token, own, "Sec-Fetch-Site", "none"); code != want {
			t.Errorf("GET %d of the URL of the console = %d, want %d", i+1, code, want)
		}
	}
}

// hangingHub answers no request.
type hangingHub struct{}

func (hangingHub) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}
