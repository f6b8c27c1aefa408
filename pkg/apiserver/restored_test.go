package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
)

// TestNoObjectsBeforeTheDataAreKnown checks that a client cannot read objects of data that may have been restored,
// and that health checks and discovery are served meanwhile.
func TestNoObjectsBeforeTheDataAreKnown(t *testing.T) {
	restored := &restoredData{}
	handler := restored.handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), scheme.Codecs)
	status := func(info *request.RequestInfo) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		handler.ServeHTTP(recorder, req.WithContext(request.WithRequestInfo(req.Context(), info)))
		return recorder
	}
	object := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "work.open-cluster-management.io", APIVersion: "v1", Resource: "manifestworks"}
	if got := status(object); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("response before the data are known = %d, %v, want 503 with Retry-After", got.Code, got.Header())
	}
	if got := status(&request.RequestInfo{Path: "/readyz"}); got.Code != http.StatusOK {
		t.Errorf("response to /readyz before the data are known = %d, want 200", got.Code)
	}
	restored.known.Store(true)
	if got := status(object); got.Code != http.StatusOK {
		t.Errorf("response after the data are known = %d, want 200", got.Code)
	}
}
