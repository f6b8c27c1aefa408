package scheme

import (
	"bytes"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The API machinery compares objects by reflection, and byte slices byte by byte. Each update of a ManifestWork
// compares its manifests several times, which took a third of the CPU time of the server for large ManifestWorks.
func init() {
	err := equality.Semantic.AddFuncs(
		func(a, b runtime.RawExtension) bool {
			return bytes.Equal(a.Raw, b.Raw) && equality.Semantic.DeepEqual(a.Object, b.Object)
		},
		func(a, b metav1.FieldsV1) bool { return bytes.Equal(a.GetRawBytes(), b.GetRawBytes()) },
	)
	if err != nil {
		panic(err)
	}
}
