package permissions

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// TestStoredWorkIsComparedByMeaning checks that a stored ManifestWork with another order of keys is
// up to date, so that it is not written again.
func TestStoredWorkIsComparedByMeaning(t *testing.T) {
	rendered := &workv1.ManifestWork{Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{
		RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"cp"},
			"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`)},
	}}}}}
	stored := rendered.DeepCopy()
	stored.Spec.Workload.Manifests[0].RawExtension = runtime.RawExtension{Raw: []byte(`{"rules":[{"verbs":["get"],"resources":["pods"],"apiGroups":[""]}],
		"metadata":{"name":"cp"},"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1"}`)}
	if !upToDate(stored, rendered) {
		t.Error("upToDate() with another order of keys = false, want true")
	}
	stored.Spec.Workload.Manifests[0].Raw = []byte(strings.Replace(string(stored.Spec.Workload.Manifests[0].Raw), "pods", "secrets", 1))
	if upToDate(stored, rendered) {
		t.Error("upToDate() with another rule = true, want false")
	}
	edited := rendered.DeepCopy()
	edited.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	if upToDate(edited, rendered) {
		t.Error("upToDate() with an added delete option = true, want false")
	}
}
