package membership

import (
	"context"
	"testing"
	"time"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// TestHeartbeatFollowsTheLeaseDuration checks that a shorter lease duration takes effect
// immediately. The hub uses the current duration to decide whether a cluster is available.
func TestHeartbeatFollowsTheLeaseDuration(t *testing.T) {
	withDuration := func(seconds int32) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: &seconds}}
	}
	h := &heartbeat{membership: &membership{retimed: make(chan struct{}, 1)}}
	h.setLatest(withDuration(3600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	beats := make(chan bool, 1)
	go func() { beats <- h.wait(ctx, time.Hour, time.Hour) }()
	h.setLatest(withDuration(1))
	if !<-beats {
		t.Error("wait() with a shorter lease duration waits for the previous duration, want an immediate renewal")
	}

	h.setLatest(withDuration(3600))
	short, stop := context.WithCancel(t.Context())
	go func() { beats <- h.wait(short, time.Hour, time.Hour) }()
	h.setLatest(withDuration(7200))
	h.setLatest(withDuration(7200))
	stop()
	if <-beats {
		t.Error("wait() with a longer lease duration renews immediately, want a wait")
	}
}
