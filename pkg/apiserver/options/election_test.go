package options

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// lease is a Lease on the hub.
type lease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

// lock is the lock of one replica.
type lock struct {
	lease    *lease
	identity string
}

func (l lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	if l.lease.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	raw, err := json.Marshal(l.lease.record)
	return l.lease.record, raw, err
}

func (l lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	l.lease.record = &record
	return nil
}

func (l lock) RecordEvent(string) {}
func (l lock) Identity() string   { return l.identity }
func (l lock) Describe() string   { return "lease" }

// TestTakeover checks that another replica leads within 15 seconds after the leader was killed, whenever it is killed
// and whatever the jitter of the other replica is.
func TestTakeover(t *testing.T) {
	const elections = 500
	synctest.Test(t, func(t *testing.T) {
		config := New().LeaderElection
		elect := func(ctx context.Context, replica lock, leading chan<- struct{}) {
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: replica, LeaseDuration: config.LeaseDuration.Duration, RenewDeadline: config.RenewDeadline.Duration, RetryPeriod: config.RetryPeriod.Duration,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leading) }, OnStoppedLeading: func() {}},
			})
			if err != nil {
				t.Error(err)
				close(leading)
				return
			}
			elector.Run(klog.NewContext(ctx, logr.Discard()))
		}
		var running sync.WaitGroup
		for range elections {
			running.Go(func() {
				ctx, kill := context.WithCancel(t.Context())
				other, stop := context.WithCancel(t.Context())
				defer stop()
				held := &lease{}
				leading, taken := make(chan struct{}), make(chan struct{})
				running.Go(func() { elect(ctx, lock{held, "leader"}, leading) })
				<-leading
				running.Go(func() { elect(other, lock{held, "other"}, taken) })
				time.Sleep(5*time.Second + rand.N(5*time.Second))
				kill()
				killed := time.Now()
				<-taken
				if after := time.Since(killed); after > 15*time.Second {
					t.Errorf("another replica leads %s after the leader was killed, want 15s at most", after)
				}
			})
		}
		running.Wait()
	})
}
