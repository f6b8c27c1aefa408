package manifestwork

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

// keepStoredJSON keeps the stored bytes of each manifest that is the same JSON value. Server-side
// apply and strategic merge patches reorder all keys, which is not a change of the spec.
func keepStoredJSON(w, old *work.ManifestWork) {
	manifests, before := w.Spec.Workload.Manifests, old.Spec.Workload.Manifests
	for i := range min(len(manifests), len(before)) {
		if sameJSON(manifests[i].Raw, before[i].Raw) {
			manifests[i] = *before[i].DeepCopy()
		}
	}
}

// sameJSON reports whether two texts are the same JSON value. Numbers are compared as text.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, ok := decode(a)
	y, also := decode(b)
	return ok && also && reflect.DeepEqual(x, y)
}

func decode(text []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, err == io.EOF
}
