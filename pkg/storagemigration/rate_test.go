package storagemigration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// changing is a store in which every update changes the stored bytes.
type changing struct{ storage.Interface }

func (changing) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (c changing) GuaranteedUpdate(_ context.Context, _ string, into runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if _, _, err := update(into, storage.ResponseMeta{ResourceVersion: 1}); err != nil {
		return err
	}
	return c.Versioner().UpdateObject(into, 2)
}

// TestRate checks that a migration rewrites at most 200 objects and 2 MiB per second, and 50,000 objects within five minutes.
func TestRate(t *testing.T) {
	for name, test := range map[string]struct {
		objects     int
		bytes       int64
		least, most time.Duration
	}{
		"small objects": {50_000, 1 << 10, 250*time.Second - 10*time.Millisecond, 5 * time.Minute},
		// The bytes of the first second are free.
		"large objects": {200, 1 << 20, 99 * time.Second, 110 * time.Second},
	} {
		m, err := New(Config{
			Transport: storagebackend.TransportConfig{ServerList: []string{"http://localhost:1"}},
			Size:      func(runtime.Object) int64 { return test.bytes },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			p, r := &pass{store: changing{}}, &Resource{Name: t.Name(), New: func() runtime.Object { return &corev1.ConfigMap{} }}
			for range test.objects {
				if err := m.rewrite(t.Context(), p, r, "key"); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); p.rewritten != test.objects || took < test.least || took > test.most {
				t.Errorf("%s: %d objects rewritten in %s, want %d in %s to %s", name, p.rewritten, took, test.objects, test.least, test.most)
			}
		})
	}
}
