package manifestwork

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

// keepSpelling leaves manifests as they are stored which mean the same as what was
// written. Server-side apply and strategic merge patches write all keys in another
// order, whatever they change; that is no change of the spec.
func keepSpelling(w, old *work.ManifestWork) {
	manifests, before := w.Spec.Workload.Manifests, old.Spec.Workload.Manifests
	for i := range min(len(manifests), len(before)) {
		if sameJSON(manifests[i].Raw, before[i].Raw) {
			manifests[i] = *before[i].DeepCopy()
		}
	}
}

// sameJSON tells whether two texts are the same JSON value. Numbers are the same if
// they are written alike.
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
