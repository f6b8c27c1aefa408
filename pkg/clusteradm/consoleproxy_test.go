package clusteradm

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
			proxy, err := newConsoleProxy(&rest.Config{Host: "https://hub.example.com", Transport: &hangingHub{}}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			request, recorder := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx), httptest.NewRecorder()
			began := time.Now()
			proxy.serveHub(recorder, request, request.URL.Path)
			if took := time.Since(began); took != want.after || recorder.Code != want.code {
				t.Errorf("GET %s with a hub that hangs = %d after %s, want %d after %s", path, recorder.Code, took, want.code, want.after)
			}
		})
	}
}
