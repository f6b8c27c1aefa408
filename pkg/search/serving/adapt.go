package serving

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
)

type tableKey struct{}

// Adapt prepares an authorized request for the REST storage of searches. It does not change requests to other groups.
//
// Adapt removes a generated Accept-Encoding from searches that come through the aggregator. Go's HTTP transport asks
// for gzip on each hop, so the aggregator asks for it even if the client does not. Compressing a page of items takes
// longer than the search, and the aggregator would decompress it at once. Browsers and curl name more encodings.
func Adapt(r *http.Request) *http.Request {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.APIGroup != searchv1alpha1.GroupName {
		return r
	}
	if info.Resource == "searches" && r.Header.Get("X-Forwarded-For") != "" && r.Header.Get("Accept-Encoding") == "gzip" {
		r.Header.Del("Accept-Encoding")
	}
	if strings.Contains(r.Header.Get("Accept"), "as=Table") {
		r = r.WithContext(context.WithValue(r.Context(), tableKey{}, true))
	}
	return r
}

// WantsTable reports whether the client requests a Table.
func WantsTable(ctx context.Context) bool { return ctx.Value(tableKey{}) != nil }
