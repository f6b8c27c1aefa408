package localhub

import (
	"strings"
	"testing"
)

func TestCanEnd(t *testing.T) {
	for _, test := range []struct {
		demands []demand
		want    bool
	}{
		{[]demand{{2, 2}, {2, 2}}, true},
		{[]demand{{2, 2}, {2, 3}}, true},
		{[]demand{{2, 3}, {2, 2}}, true},
		// Each could wait for a third slot while the other keeps its shared ones.
		{[]demand{{2, 3}, {2, 3}}, false},
		{[]demand{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, true},
		{[]demand{{2, 0}, {2, 0}, {2, 0}}, true},
		{[]demand{{2, 0}, {2, 0}, {2, 1}}, true},
		{[]demand{{2, 1}, {2, 1}, {2, 1}}, false},
		{[]demand{{4, 0}, {4, 0}}, false},
		{[]demand{{6, 0}}, true},
	} {
		if got := canEnd(test.demands); got != test.want {
			t.Errorf("canEnd(%v) = %v, want %v", test.demands, got, test.want)
		}
	}
}

// TestUnreservedControlPlane checks that a test cannot exceed the limit unnoticed.
func TestUnreservedControlPlane(t *testing.T) {
	cluster := &Cluster{Name: "hub", Etcd: &Etcd{Process: &Process{}}, APIServer: &Process{}}
	err := cluster.Start(t.Context())
	if want := "call framework.Slots first"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Start() without a reserved slot = %v, want %q", err, want)
	}
}
