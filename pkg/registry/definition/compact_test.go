package definition

import (
	"fmt"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// TestCompactCodec decodes two versions of an object. The lists have no spare capacity, and the
// versions share their short strings.
func TestCompactCodec(t *testing.T) {
	plain := scheme.Codecs.LegacyCodec(workv1.SchemeGroupVersion)
	stored := &work.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"}}}
	for i := range 33 {
		stored.Status.ResourceStatus.Manifests = append(stored.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Name: fmt.Sprint(i)},
			Conditions:   []metav1.Condition{{Type: "Applied", Message: fmt.Sprintf("%0100d", i)}, {Type: "Available"}, {Type: "Other"}},
		})
	}
	data, err := runtime.Encode(plain, stored)
	if err != nil {
		t.Fatal(err)
	}
	codec := compactCodec{plain, newInterner()}
	decode := func(codec runtime.Decoder) *work.ManifestWork {
		t.Helper()
		obj, err := runtime.Decode(codec, data)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*work.ManifestWork)
	}
	want, got, again := decode(plain), decode(codec), decode(codec)
	if !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("Decode() = %+v, want %+v", got, want)
	}
	manifests := got.Status.ResourceStatus.Manifests
	if cap(manifests) != len(manifests) || cap(manifests[0].Conditions) != 3 {
		t.Errorf("cap() of manifests and conditions = %d, %d, want %d, 3", cap(manifests), cap(manifests[0].Conditions), len(manifests))
	}
	shared := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	if other := again.Status.ResourceStatus.Manifests; !shared(manifests[0].ResourceMeta.Kind, other[32].ResourceMeta.Kind) {
		t.Error("copies of the kind ConfigMap = 2, want 1")
	} else if shared(manifests[0].Conditions[0].Message, other[0].Conditions[0].Message) {
		t.Error("copies of a long string = 1, want 2")
	}
}
