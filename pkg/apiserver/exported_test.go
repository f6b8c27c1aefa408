package apiserver_test

import (
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// TestExportedKinds checks that another hub can adopt every kind that the server stores.
func TestExportedKinds(t *testing.T) {
	exported := handover.Kinds
	rows := apiserver.Resources(apiserver.Dependencies{})
	for _, row := range rows {
		if !slices.ContainsFunc(exported, func(kind handover.Kind) bool {
			return kind.Name == row.Kind && kind.Resource.Resource == row.Name && slices.Contains(row.Versions, kind.Resource.GroupVersion())
		}) {
			t.Errorf("handover.Kinds = %v, want %s %s: clusteradm hub export would omit it", exported, row.Versions[0], row.Kind)
		}
	}
	if len(exported) != len(rows) {
		t.Errorf("handover.Kinds = %d kinds, want the %d of the resource table", len(exported), len(rows))
	}
}
