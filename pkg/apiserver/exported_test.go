package apiserver_test

import (
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
)

// TestExportedKinds checks that another hub can adopt every kind that the server stores.
func TestExportedKinds(t *testing.T) {
	exported := clusteradm.ExportedKinds()
	rows := apiserver.Resources(apiserver.Dependencies{})
	for _, row := range rows {
		if !slices.ContainsFunc(exported, func(kind clusteradm.ExportedKind) bool {
			return kind.Kind == row.Kind && kind.Resource.Resource == row.Name && slices.Contains(row.Versions, kind.Resource.GroupVersion())
		}) {
			t.Errorf("ExportedKinds() = %v, want %s %s: clusteradm hub export would omit it", exported, row.Versions[0], row.Kind)
		}
	}
	if len(exported) != len(rows) {
		t.Errorf("ExportedKinds() = %d kinds, want the %d of the resource table", len(exported), len(rows))
	}
}
