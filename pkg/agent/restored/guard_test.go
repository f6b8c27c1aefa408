package restored

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
)

// hub answers requests for the ManagedCluster.
type hub struct {
	clusterclient.ManagedClusterInterface
	cluster *clusterv1.ManagedCluster
	err     error
	// lost are the errors of the first requests.
	lost []error
}

func (h *hub) Get(context.Context, string, metav1.GetOptions) (*clusterv1.ManagedCluster, error) {
	if len(h.lost) > 0 {
		err := h.lost[0]
		h.lost = h.lost[1:]
		return nil, err
	}
	return h.cluster, h.err
}

func marked(restored, confirmed string) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{}
	for key, value := range map[string]string{clusterv1.RestoredAnnotation: restored, clusterv1.RestoreConfirmedAnnotation: confirmed} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, key, value)
		}
	}
	return cluster
}

func TestKeeps(t *testing.T) {
	notFound := apierrors.NewNotFound(clusterv1.Resource("managedclusters"), "cluster1")
	forbidden := apierrors.NewForbidden(clusterv1.Resource("managedclusters"), "cluster1", nil)
	unavailable := apierrors.NewServiceUnavailable("down")
	for name, test := range map[string]struct {
		began, now *clusterv1.ManagedCluster
		beganErr   error
		nowErr     error
		seen       bool
		want       bool
		wantErr    error
	}{
		"never restored":                        {began: marked("", ""), now: marked("", "")},
		"restored":                              {began: marked("1", ""), now: marked("1", ""), want: true},
		"restored, but seen since":              {began: marked("1", ""), now: marked("1", ""), seen: true},
		"confirmed":                             {began: marked("1", ""), now: marked("1", "1")},
		"an earlier restore is confirmed":       {began: marked("2", "1"), now: marked("2", "1"), want: true},
		"restored meanwhile":                    {began: marked("", ""), now: marked("1", ""), want: true, wantErr: ErrRestored},
		"restored meanwhile, but seen before":   {began: marked("", ""), now: marked("1", ""), seen: true, want: true, wantErr: ErrRestored},
		"restored again":                        {began: marked("1", "1"), now: marked("2", "1"), want: true, wantErr: ErrRestored},
		"the hub does not respond":              {began: marked("", ""), nowErr: unavailable, want: true, wantErr: unavailable},
		"the hub has lost the ManagedCluster":   {began: marked("", ""), nowErr: notFound, want: true, wantErr: notFound},
		"the agent may no longer read it":       {began: marked("", ""), nowErr: forbidden, want: true, wantErr: forbidden},
		"the hub never had the ManagedCluster":  {beganErr: notFound, nowErr: notFound},
		"the agent may not read ManagedCluster": {beganErr: forbidden, nowErr: forbidden},
	} {
		h := &hub{cluster: test.began, err: test.beganErr}
		g := New(Config{ClusterName: "cluster1", Clusters: h})
		if err := g.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.cluster, h.err = test.now, test.nowErr
		got, err := g.Keeps(t.Context(), test.seen)
		if got != test.want || (err != nil) != (test.wantErr != nil) || test.wantErr != nil && !errors.Is(err, test.wantErr) {
			t.Errorf("%s: Keeps() = %t, %v, want %t, %v", name, got, err, test.want, test.wantErr)
		}
		select {
		case <-g.changed:
			if !errors.Is(test.wantErr, ErrRestored) {
				t.Errorf("%s: the session ends, want it to continue", name)
			}
		default:
			if errors.Is(test.wantErr, ErrRestored) {
				t.Errorf("%s: the session continues, want it to end", name)
			}
		}
	}
}

// TestLostLater checks that a ManagedCluster that the agent has read after the session began protects from
// then on.
func TestLostLater(t *testing.T) {
	notFound := apierrors.NewNotFound(clusterv1.Resource("managedclusters"), "cluster1")
	h := &hub{err: notFound}
	g := New(Config{ClusterName: "cluster1", Clusters: h})
	if err := g.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.cluster, h.err = marked("", ""), nil
	if keeps, err := g.Keeps(t.Context(), false); keeps || err != nil {
		t.Errorf("Keeps() of a hub that was not restored = %t, %v, want false", keeps, err)
	}
	h.cluster, h.err = nil, notFound
	if keeps, err := g.Keeps(t.Context(), true); !keeps || !errors.Is(err, notFound) {
		t.Errorf("Keeps() without the ManagedCluster = %t, %v, want true, %v", keeps, err, notFound)
	}
}

// TestBeginWaits checks that a session does not begin without the ManagedCluster if the agent has read it
// before: an earlier session, or the part of the agent that registers the cluster.
func TestBeginWaits(t *testing.T) {
	for _, lost := range []error{
		apierrors.NewNotFound(clusterv1.Resource("managedclusters"), "cluster1"),
		apierrors.NewForbidden(clusterv1.Resource("managedclusters"), "cluster1", nil),
	} {
		for _, registered := range []bool{false, true} {
			h := &hub{cluster: marked("1", ""), lost: []error{lost}}
			config := Config{ClusterName: "cluster1", Clusters: h}
			if registered {
				config.Latest = func() *clusterv1.ManagedCluster { return marked("", "") }
			}
			g := New(config)
			if !registered {
				g.Expect()
			}
			if err := g.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if keeps, err := g.Keeps(t.Context(), false); !keeps || err != nil {
				t.Errorf("Keeps() after Begin() that got %v first = %t, %v, want true", lost, keeps, err)
			}
		}
	}
}

// TestLatestOnlyDelays checks that a last known state without a pending restore does not allow a removal.
func TestLatestOnlyDelays(t *testing.T) {
	h := &hub{cluster: marked("1", "")}
	latest := marked("1", "1")
	g := New(Config{ClusterName: "cluster1", Clusters: h, Latest: func() *clusterv1.ManagedCluster { return latest }})
	if err := g.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keeps, err := g.Keeps(t.Context(), false); !keeps || err != nil {
		t.Errorf("Keeps() with an outdated confirmation = %t, %v, want true", keeps, err)
	}
	latest, h.err = marked("1", ""), errors.New("no request is necessary")
	if keeps, err := g.Keeps(t.Context(), false); !keeps || err != nil {
		t.Errorf("Keeps() with a known restore = %t, %v, want true without a request", keeps, err)
	}
}

func TestMessageIsBounded(t *testing.T) {
	g := New(Config{ClusterName: "cluster1"})
	if got := g.Message(); got != "" {
		t.Errorf("Message() = %q, want nothing", got)
	}
	for i := range listed + 7 {
		g.Retain(Ref{"manifestworks", fmt.Sprintf("w%02d", i)}, "1 object")
	}
	lines := strings.Split(g.Message(), "\n")
	if len(lines) != listed+2 || lines[1] != "manifestworks/w00: 1 object" || lines[listed+1] != "7 more" {
		t.Errorf("Message() = %q, want %d objects and the number of others", lines, listed)
	}
	for i := range listed + 7 {
		g.Release(Ref{"manifestworks", fmt.Sprintf("w%02d", i)})
	}
	if got := g.Message(); got != "" {
		t.Errorf("Message() after the release = %q, want nothing", got)
	}
}
