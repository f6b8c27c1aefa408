package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
)

func TestAdapt(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for name, test := range map[string]struct {
		group, resource, encoding, accept string
		proxied                           bool
		wantEncoding                      string
		wantTable                         bool
	}{
		"search of a Go client through the aggregator": {searchv1alpha1.GroupName, "searches", "gzip", "", true, "", false},
		"search of a Go client":                        {searchv1alpha1.GroupName, "searches", "gzip", "", false, "gzip", false},
		"search of a browser through the aggregator":   {searchv1alpha1.GroupName, "searches", "gzip, deflate, br", "", true, "gzip, deflate, br", false},
		"list through the aggregator":                  {searchv1alpha1.GroupName, "fleetresources", "gzip", "application/json", true, "gzip", false},
		"table through the aggregator":                 {searchv1alpha1.GroupName, "fleetresources", "gzip", table, true, "gzip", true},
		"table of another group":                       {"work.open-cluster-management.io", "manifestworks", "gzip", table, true, "gzip", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", test.encoding)
			r.Header.Set("Accept", test.accept)
			if test.proxied {
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
			}
			info := &request.RequestInfo{APIGroup: test.group, Resource: test.resource}
			got := Adapt(r.WithContext(request.WithRequestInfo(r.Context(), info)))
			if encoding := got.Header.Get("Accept-Encoding"); encoding != test.wantEncoding {
				t.Errorf("Accept-Encoding after Adapt() = %q, want %q", encoding, test.wantEncoding)
			}
			if wants := WantsTable(got.Context()); wants != test.wantTable {
				t.Errorf("WantsTable() = %v, want %v", wants, test.wantTable)
			}
		})
	}
}
