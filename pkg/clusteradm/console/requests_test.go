package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestConsoleRequest(t *testing.T) {
	const (
		search = "/apis/search.open-cluster-management.io/v1alpha1"
		rbac   = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/cluster1/clusterpermissions"
	)
	for _, c := range []struct {
		method, path string
		want         string // the verb, or empty if the request is refused
	}{
		{http.MethodGet, search + "/console/index.html", "get"},
		{http.MethodHead, search + "/console/index.html", "get"},
		{http.MethodGet, search + "/console", ""},
		{http.MethodGet, search + "/namespaces/cluster1/fleetresources?watch=1", "watch"},
		{http.MethodPost, search + "/searches", "create"},
		{http.MethodGet, search + "/graphql", ""},
		{http.MethodGet, rbac + "/p", "get"},
		{http.MethodGet, rbac + "/p/rendered", "get"},
		{http.MethodPost, rbac + "/p/rendered", "create"},
		{http.MethodPut, rbac + "/p/approval", "update"},
		{http.MethodPut, rbac + "/p", ""},
		{http.MethodPut, rbac + "/p/status", ""},
		{http.MethodPost, rbac, ""},
		{http.MethodDelete, rbac, ""},
		{http.MethodOptions, rbac, ""},
		{http.MethodPut, "/apis/register.open-cluster-management.io/v1alpha1/managedclusters/cluster1/accept", "update"},
		{http.MethodPost, "/apis/register.open-cluster-management.io/v1alpha1/managedclusters/cluster1/irsa", ""},
		{http.MethodGet, "/apis", "get"},
		{http.MethodGet, "/version", "get"},
		{http.MethodGet, search, "get"},
		{http.MethodGet, "/apis/apps/v1", ""},
		{http.MethodPost, search, ""},
		{http.MethodGet, "/", ""},
		{http.MethodGet, "/api", ""},
		{http.MethodGet, "/api/v1/secrets", ""},
		{http.MethodGet, "/api/search.open-cluster-management.io/v1alpha1/fleetresources", ""},
		{http.MethodGet, "/healthz", ""},
		{http.MethodGet, search + "/console/../../../../api/v1/secrets", ""},
		{http.MethodGet, "/apis/cluster.open-cluster-management.io/v1/managedclusters/../../../../api/v1/secrets", ""},
		{http.MethodGet, search + "//console/index.html", ""},
		{http.MethodGet, search + "/console/index.html/", ""},
	} {
		got := ""
		if info := describe(httptest.NewRequest(c.method, c.path, nil)); info != nil {
			got = info.Verb
		}
		if got != c.want {
			t.Errorf("describe(%s %s) has verb %q, want %q", c.method, c.path, got, c.want)
		}
	}
}
