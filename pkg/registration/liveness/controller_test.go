package liveness

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

func TestAgentThatStops(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("it looks again after %s", again)
	}
	b.pass(lease)
	b.renew("cluster1", 0)
	b.pass(5*lease - time.Second)
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("after the renewal it looks again after %s", again)
	}
	b.pass(5*lease - time.Second)
	if again := b.look("cluster1"); again != time.Second {
		t.Errorf("just before the end it looks again after %s", again)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.expectTaints("cluster1")
	b.pass(time.Second)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.expectTaints("cluster1", unreachable)
	b.writes()
	b.pass(time.Hour)
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes where nothing has changed", writes)
	}

	// It is back when its agent says so.
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.report("cluster1", metav1.ConditionTrue)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.expectTaints("cluster1")
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// An agent that reports before it renews is not contradicted at once.
func TestAgentThatReportsFirst(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.report("cluster1", metav1.ConditionTrue)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.expectTaints("cluster1")
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.expectTaints("cluster1", unreachable)
}

// A cluster whose Lease is nowhere counts as one that does not renew.
func TestNoLease(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// The clock of a cluster may be years off: its time is that of the hub.
func TestClockOfTheCluster(t *testing.T) {
	const off, limit = 20 * 365 * 24 * time.Hour, lease
	for _, skew := range []time.Duration{-off, off, -limit - time.Second, limit + time.Second} {
		b := newBench(t)
		b.accept("cluster1", available)
		for range 3 {
			b.renew("cluster1", skew)
			b.look("cluster1")
			b.pass(lease)
		}
		b.expectAvailable("cluster1", metav1.ConditionTrue)
		b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse, ReasonClockOutOfSync)
		b.writes()
		b.renew("cluster1", skew)
		b.look("cluster1")
		if writes := b.writes(); writes > 0 {
			t.Errorf("a clock that is still %s off has %d writes made", skew, writes)
		}
		b.pass(5 * lease)
		b.look("cluster1")
		b.expectAvailable("cluster1", metav1.ConditionUnknown)

		// Set right, it is in sync; near the limit it stays as it is.
		b.renew("cluster1", limit-time.Second)
		b.look("cluster1")
		b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse, ReasonClockOutOfSync)
		b.pass(lease)
		b.renew("cluster1", time.Second)
		b.look("cluster1")
		b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, ReasonClockSynced)
	}
}

// The clock of a cluster that wants no check of it is not looked at.
func TestClockThatIsNotChecked(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	for range 3 {
		b.renew("cluster1", time.Hour)
		b.look("cluster1")
		b.pass(lease)
	}
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse, ReasonClockOutOfSync)
	b.change("cluster1", func(c *clusterv1.ManagedCluster) {
		c.Annotations = map[string]string{clusterv1.SkipClockSyncCheckAnnotation: "true"}
	})
	b.renew("cluster1", time.Hour)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, "", "")
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.writes()
	b.renew("cluster1", time.Hour)
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes where nothing has changed", writes)
	}
}

// A renewal that the server hears of late says nothing of the clock.
func TestRenewalSeenLate(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, "", "") // when that was is not known
	b.pass(lease)
	b.renew("cluster1", 0)
	b.pass(3 * lease)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, "", "")
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, ReasonClockSynced)
	b.pass(lease)
	b.renew("cluster1", 0)
	b.pass(2 * lease)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, ReasonClockSynced)
}

// A server that was down, or not the one that acts, has not seen the renewals.
func TestRestart(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.pass(time.Hour)
	b.restart()
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("it looks again after %s", again)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.restart()
	b.writes()
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes after a restart", writes)
	}
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// What the cache has not heard of, the hub is asked for.
func TestCacheThatIsBehind(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.pass(4 * lease)
	b.renewOnHub("cluster1", 0)
	b.pass(lease)
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("it looks again after %s", again)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// While the hub is not reached, the agents may not reach it either.
func TestHubThatIsDown(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	down := true
	b.hub.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down, nil, errors.New("connection refused")
	})
	b.pass(5 * lease)
	if _, err := b.tryToLook("cluster1"); err == nil {
		t.Error("it does not say that the hub is down")
	}
	down = false
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("it looks again after %s", again)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// A write that comes too late is made again, and nothing is lost by it.
func TestWriteThatConflicts(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	b.pass(5 * lease)
	conflicts := true
	b.server.PrependReactor("update", "managedclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return conflicts, nil, apierrors.NewConflict(clusterv1.Resource("managedclusters"), "cluster1", errors.New("changed"))
	})
	b.look("cluster1")
	conflicts = false
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.expectTaints("cluster1", unreachable)
}

// What a renewal says is not lost when somebody else writes the cluster meanwhile.
func TestClockWhenWritesConflict(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	conflicts := true
	b.server.PrependReactor("update", "managedclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return conflicts, nil, apierrors.NewConflict(clusterv1.Resource("managedclusters"), "cluster1", errors.New("changed"))
	})
	b.renew("cluster1", 0)
	b.look("cluster1")
	conflicts = false
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, ReasonClockSynced)
}

// The Lease as the hub has made it says nothing of the cluster.
func TestLeaseThatWasNeverRenewed(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	b.pass(lease)
	made := b.renewal("cluster1", 0)
	made.Spec.AcquireTime = made.Spec.RenewTime
	if err := b.leases.Update(made); err != nil {
		t.Fatal(err)
	}
	if again := b.look("cluster1"); again != 4*lease {
		t.Errorf("it looks again after %s", again)
	}
	if meta.FindStatusCondition(b.get("cluster1").Status.Conditions, clusterv1.ManagedClusterConditionClockSynced) != nil {
		t.Error("it says something of the clock")
	}
	b.pass(4 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

func TestTaints(t *testing.T) {
	b := newBench(t)
	foreign := []clusterv1.Taint{
		{Key: "example.com/maintenance", Effect: clusterv1.TaintEffectNoSelect},
		{Key: TaintUnreachable, Effect: clusterv1.TaintEffectPreferNoSelect},
		{Key: "example.com/unreachable", Value: "yes", Effect: clusterv1.TaintEffectNoSelectIfNew},
	}
	kept := []string{"example.com/maintenance:NoSelect", TaintUnreachable + ":PreferNoSelect", "example.com/unreachable:NoSelectIfNew"}
	b.accept("cluster1")
	b.change("cluster1", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = foreign })
	b.look("cluster1")
	b.expectTaints("cluster1", append(slices.Clone(kept), unreachable)...)
	b.report("cluster1", metav1.ConditionFalse)
	b.look("cluster1")
	b.expectTaints("cluster1", append(slices.Clone(kept), unavailable)...)
	b.report("cluster1", metav1.ConditionUnknown)
	b.look("cluster1")
	b.expectTaints("cluster1", append(slices.Clone(kept), unreachable)...)
	b.report("cluster1", metav1.ConditionTrue)
	b.look("cluster1")
	b.expectTaints("cluster1", kept...)
	b.report("cluster1", metav1.ConditionFalse)
	b.look("cluster1")
	// Somebody takes it away, or puts it where it does not belong.
	b.change("cluster1", func(c *clusterv1.ManagedCluster) {
		c.Spec.Taints = []clusterv1.Taint{{Key: TaintUnreachable, Effect: clusterv1.TaintEffectNoSelect}, foreign[0]}
	})
	b.look("cluster1")
	b.expectTaints("cluster1", kept[0], unavailable)
	b.writes()
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes where nothing has changed", writes)
	}
}

// Of a cluster that was denied nothing is known, until it is accepted again and tells.
func TestDenied(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.change("cluster1", func(c *clusterv1.ManagedCluster) {
		c.Status.Acceptance = &clusterv1.Acceptance{EverAccepted: true}
		c.Spec.HubAcceptsClient = false
	})
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonHubClusterAdminDenied)
	b.expectTaints("cluster1", unreachable)
	b.writes()
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes where nothing has changed", writes)
	}
	b.change("cluster1", func(c *clusterv1.ManagedCluster) {
		c.Spec.HubAcceptsClient = true
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable",
		})
	})
	b.look("cluster1")
	b.expectTaints("cluster1")
}

// Nobody but accepted clusters that have joined is expected to renew anything.
func TestOtherClusters(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*clusterv1.ManagedCluster){
		"denied":   func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false },
		"deleting": func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = new(metav1.Now()) },
	} {
		b.accept(name, available)
		b.change(name, change)
		b.writes()
		b.look(name)
		b.pass(time.Hour)
		b.look(name)
		if writes := b.writes(); writes > 0 {
			t.Errorf("%d writes to a cluster that is %s", writes, name)
		}
	}
	b.accept("new")
	b.change("new", func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil })
	b.look("new")
	b.pass(time.Hour)
	b.look("new")
	b.expect("new", clusterv1.ManagedClusterConditionAvailable, "", "")
	b.expectTaints("new", unreachable)

	// One that is accepted again has all its time, as one that follows another of its name.
	b.accept("again", available)
	b.look("again")
	b.change("again", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	b.look("again")
	b.pass(time.Hour)
	b.change("again", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })
	b.look("again")
	b.expectAvailable("again", metav1.ConditionTrue)
	b.pass(time.Hour)
	b.change("again", func(c *clusterv1.ManagedCluster) { c.UID = "other" })
	b.look("again")
	b.expectAvailable("again", metav1.ConditionTrue)

	if _, err := b.reconcile(t.Context(), cache.ObjectName{Name: "unknown"}); err != nil {
		t.Error(err)
	}
}

func TestDurations(t *testing.T) {
	for seconds, expected := range map[int32]time.Duration{
		0: 5 * time.Minute, 1: 5 * time.Second, 120: 10 * time.Minute, math.MaxInt32: 5 * longestLeaseDuration,
	} {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: &seconds}}
		if grace := gracePeriod(cluster); grace != expected {
			t.Errorf("%d seconds make %s, not %s", seconds, grace, expected)
		}
	}
}

// A fleet that is well costs the server nothing.
func TestThousandClustersCauseNoWrites(t *testing.T) {
	b := newBench(t)
	synced := condition(clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue)
	synced.Reason = ReasonClockSynced
	var names []string
	for i := range 1000 {
		name := fmt.Sprintf("cluster%d", i)
		names = append(names, name)
		b.accept(name, available, synced)
		b.look(name)
	}
	b.writes()
	for range 8 {
		b.pass(lease)
		for i, name := range names {
			if err := b.leases.Update(b.renewal(name, time.Duration(i%10)*time.Second)); err != nil {
				t.Fatal(err)
			}
			again, err := b.reconcile(t.Context(), cache.ObjectName{Name: name})
			if err != nil || again != 5*lease {
				t.Fatalf("it looks at %s again after %s: %v", name, again, err)
			}
		}
	}
	if writes := b.writes(); writes > 0 {
		t.Errorf("%d writes", writes)
	}
	if requests := b.hub.Actions(); len(requests) > 0 {
		t.Errorf("%d requests to the hub", len(requests))
	}
}
