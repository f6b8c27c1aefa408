package definition

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KeepMetadata restores labels and annotations that only the server may change. old is nil for a new object. The
// server finds the objects that it deletes by such labels.
func KeepMetadata(ctx context.Context, obj, old metav1.Object, labels, annotations []string) {
	if ByServer(ctx) {
		return
	}
	if old == nil {
		old = &metav1.ObjectMeta{}
	}
	obj.SetLabels(kept(obj.GetLabels(), old.GetLabels(), labels))
	obj.SetAnnotations(kept(obj.GetAnnotations(), old.GetAnnotations(), annotations))
}

// kept returns values with the entries that old has for the keys.
func kept(values, old map[string]string, keys []string) map[string]string {
	for _, key := range keys {
		value, had := old[key]
		if !had {
			delete(values, key)
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value
	}
	return values
}
