package registration

import (
	"context"
	"testing"
	"time"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// The hub takes a cluster for lost by the lease duration that it asks for now.
func TestHeartbeatFollowsTheLeaseDuration(t *testing.T) {
	told := func(seconds int32) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: &seconds}}
	}
	h := &heartbeat{membership: &membership{retimed: make(chan struct{}, 1)}}
	h.hear(told(3600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	beats := make(chan bool, 1)
	go func() { beats <- h.wait(ctx, time.Hour, time.Hour) }()
	h.hear(told(1))
	if !<-beats {
		t.Error("with a shorter lease duration, it waits for the end of the former one")
	}

	h.hear(told(3600))
	short, stop := context.WithCancel(t.Context())
	go func() { beats <- h.wait(short, time.Hour, time.Hour) }()
	h.hear(told(7200))
	h.hear(told(7200))
	stop()
	if <-beats {
		t.Error("with a longer lease duration, it beats at once")
	}
}
