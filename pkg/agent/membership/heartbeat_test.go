package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// TestHeartbeatFollowsTheLeaseDuration checks that a shorter lease duration takes effect
// immediately. The hub uses the current duration to decide whether a cluster is available.
func TestHeartbeatFollowsTheLeaseDuration(t *testing.T) {
	withDuration := func(seconds int32) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: &seconds}}
	}
	hub := newHub(t)
	now := metav1.NewMicroTime(time.Unix(0, 0))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: LeaseName}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	if err := hub.kube.Tracker().Add(lease); err != nil {
		t.Fatal(err)
	}
	r := newRegistrar(t, Config{})
	synctest.Test(t, func(t *testing.T) {
		m := &membership{Registrar: r, conn: &connection{hub: hub.hubClients}, known: &identity{}, retimed: make(chan struct{}, 1)}
		m.setLatest(withDuration(3600))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour/2)
		defer cancel()
		beats := 0
		hub.kube.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if beats++; beats == 1 {
				time.AfterFunc(time.Minute, func() { m.setLatest(withDuration(1)) })
			} else if beats == 3 {
				cancel()
			}
			return false, nil, nil
		})
		began := time.Now()
		m.renewLease(ctx)
		if took := time.Since(began); beats != 3 || took > 62*time.Second {
			t.Errorf("renewals = %d after %s, want 3, the second at once when the hub shortens the duration after a minute", beats, took)
		}
	})
}
