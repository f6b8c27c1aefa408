package migrate

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// TestMigrationBelievesNoCluster checks that a migration to the server copies neither the creator of a ManagedCluster nor an
// epoch, unless it is the recorded one: everyone with permission to update ManagedClusters could write them before.
func TestMigrationBelievesNoCluster(t *testing.T) {
	recorded := rehoming.Epoch{Number: 2, Hub: "hub"}
	for _, test := range []struct {
		epoch, want string
		hub         rehoming.Epoch
	}{
		{"2/hub", "2/hub", recorded}, {"9007199254740992/evil", "", recorded}, {"x", "", recorded}, {"1/evil", "", rehoming.Epoch{}},
	} {
		cluster := &unstructured.Unstructured{Object: map[string]any{}}
		cluster.SetAnnotations(map[string]string{rehoming.EpochAnnotation: test.epoch, requestedByAnnotation: "mallory", "kept": "yes"})
		findings := distrust(cluster, test.hub)
		annotations := cluster.GetAnnotations()
		if annotations[rehoming.EpochAnnotation] != test.want || annotations[requestedByAnnotation] != "" || annotations["kept"] != "yes" || (len(findings) > 0) != (test.want == "") {
			t.Errorf("distrust() of epoch %q on a hub with epoch %q = %v and annotations %v, want epoch %q and no creator", test.epoch, test.hub, findings, annotations, test.want)
		}
	}
}
