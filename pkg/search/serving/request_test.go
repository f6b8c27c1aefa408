package serving

import (
	"slices"
	"testing"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// TestRepeatedOrders checks that a continue token contains the value of each property once, however often it is named:
// the token of a search must fit into the next request.
func TestRepeatedOrders(t *testing.T) {
	got, errs := Request(&searchv1alpha1.SearchRequest{OrderBy: []string{"name", "kind desc", "name desc", "name", "kind"}}, nil)
	if want := []search.Order{{Property: "name"}, {Property: "kind", Descending: true}}; len(errs) > 0 || !slices.Equal(got.OrderBy, want) {
		t.Errorf("orders = %v, %v, want %v", got.OrderBy, errs, want)
	}
}
