package scheme

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestEqualityOfBytes(t *testing.T) {
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }
	object := func(name string) runtime.RawExtension {
		return runtime.RawExtension{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	for name, c := range map[string]struct {
		a, b any
		want bool
	}{
		"same bytes":          {raw("a"), raw("a"), true},
		"other bytes":         {raw("a"), raw("b"), false},
		"empty and nil bytes": {runtime.RawExtension{Raw: []byte{}}, runtime.RawExtension{}, true},
		"same objects":        {object("a"), object("a"), true},
		"other objects":       {object("a"), object("b"), false},
		"object and empty":    {object("a"), runtime.RawExtension{}, false},
		"within a list":       {[]runtime.RawExtension{raw("a"), raw("b")}, []runtime.RawExtension{raw("a"), raw("c")}, false},
		"same fields":         {metav1.NewFieldsV1("{}"), metav1.NewFieldsV1("{}"), true},
		"other fields":        {metav1.NewFieldsV1("{}"), metav1.NewFieldsV1(`{"f:a":{}}`), false},
	} {
		if got := equality.Semantic.DeepEqual(c.a, c.b); got != c.want {
			t.Errorf("%s: DeepEqual() = %v, want %v", name, got, c.want)
		}
	}
}

// A comparison by reflection would allocate for each byte of a manifest.
func TestEqualityOfBytesAllocatesLittle(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	a, b := runtime.RawExtension{Raw: large}, runtime.RawExtension{Raw: bytes.Clone(large)}
	if n := testing.AllocsPerRun(5, func() { equality.Semantic.DeepEqual(a, b) }); n > 100 {
		t.Errorf("allocations of a comparison of 1 MiB = %.0f, want at most 100", n)
	}
}
