package inventory

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
)

// TestClusterOfReports checks that a cluster reports only in its own namespace: the agents of other clusters are authorized
// in theirs.
func TestClusterOfReports(t *testing.T) {
	sync := NewSync(&ingest.Handler{})
	for namespace, allowed := range map[string]bool{"cluster1": true, "cluster2": false, "": false} {
		handler, err := sync.Connect(request.WithNamespace(t.Context(), namespace), "cluster1", nil, nil)
		if got := handler != nil; got != allowed || allowed != (err == nil) || err != nil && !apierrors.IsBadRequest(err) {
			t.Errorf("Connect() of cluster1 in namespace %q = %v, want allowed = %t", namespace, err, allowed)
		}
	}
}
