package manifestwork

import (
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// keepStoredJSON keeps the stored bytes of each manifest that is the same JSON value. Server-side
// apply and strategic merge patches reorder all keys, which is not a change of the spec.
func keepStoredJSON(w, old *work.ManifestWork) {
	manifests, before := w.Spec.Workload.Manifests, old.Spec.Workload.Manifests
	for i := range min(len(manifests), len(before)) {
		if workv1.SameJSON(manifests[i].Raw, before[i].Raw) {
			manifests[i] = *before[i].DeepCopy()
		}
	}
}
