package liveness

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
		t.Errorf("time to the next reconciliation = %s, want %s", again, 5*lease)
	}
	b.pass(lease)
	b.renew("cluster1", 0)
	b.pass(5*lease - time.Second)
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("time to the next reconciliation after the renewal = %s, want %s", again, 5*lease)
	}
	b.pass(5*lease - time.Second)
	if again := b.look("cluster1"); again != time.Second {
		t.Errorf("time to the next reconciliation just before the end = %s, want 1s", again)
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
		t.Errorf("writes without changes = %d, want 0", writes)
	}

	// The cluster is available again when its agent reports it.
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

// If an agent reports before it renews the Lease, the report is kept for the grace period.
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

// A cluster without a Lease counts as a cluster that does not renew.
func TestNoLease(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// The clock of a cluster may be wrong by years. The controller uses the clock of the hub.
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
			t.Errorf("writes for an unchanged skew of %s = %d, want 0", skew, writes)
		}
		b.pass(5 * lease)
		b.look("cluster1")
		b.expectAvailable("cluster1", metav1.ConditionUnknown)

		// Near the limit, the condition stays unchanged. With a correct clock, it becomes True.
		b.renew("cluster1", limit-time.Second)
		b.look("cluster1")
		b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse, ReasonClockOutOfSync)
		b.pass(lease)
		b.renew("cluster1", time.Second)
		b.look("cluster1")
		b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, ReasonClockSynced)
	}
}

// The clock of a cluster with the annotation that skips the check is not checked.
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
		t.Errorf("writes without changes = %d, want 0", writes)
	}
}

// A renewal that the server observes late does not change the condition of the clock.
func TestRenewalSeenLate(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.expect("cluster1", clusterv1.ManagedClusterConditionClockSynced, "", "") // the time of this renewal is unknown
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

// A server that was down or not the leader has not observed the renewals.
func TestRestart(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.pass(time.Hour)
	b.restart()
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("time to the next reconciliation = %s, want %s", again, 5*lease)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
	b.restart()
	b.writes()
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("writes after a restart = %d, want 0", writes)
	}
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// If the cache does not contain a renewal, the controller reads it from the hub.
func TestCacheThatIsBehind(t *testing.T) {
	b := newBench(t)
	b.accept("cluster1", available)
	b.renew("cluster1", 0)
	b.look("cluster1")
	b.pass(4 * lease)
	b.renewOnHub("cluster1", 0)
	b.pass(lease)
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("time to the next reconciliation = %s, want %s", again, 5*lease)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// While the controller cannot reach the hub, the agents may not reach it either.
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
	if _, err := b.tryToLook("cluster1"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("reconcile() while the hub is down = %v, want the error of the hub", err)
	}
	down = false
	if again := b.look("cluster1"); again != 5*lease {
		t.Errorf("time to the next reconciliation = %s, want %s", again, 5*lease)
	}
	b.expectAvailable("cluster1", metav1.ConditionTrue)
	b.pass(5 * lease)
	b.look("cluster1")
	b.expectAvailable("cluster1", metav1.ConditionUnknown)
}

// After a conflict, the controller repeats the write.
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

// The condition of a renewal is not lost if another client writes the cluster at the same time.
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

// The Lease that the hub creates is not a renewal of the cluster.
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
		t.Errorf("time to the next reconciliation = %s, want %s", again, 4*lease)
	}
	if meta.FindStatusCondition(b.get("cluster1").Status.Conditions, clusterv1.ManagedClusterConditionClockSynced) != nil {
		t.Error("condition ClockSynced exists, want none")
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
	// Another client removes the taint of the server and adds a wrong one.
	b.change("cluster1", func(c *clusterv1.ManagedCluster) {
		c.Spec.Taints = []clusterv1.Taint{{Key: TaintUnreachable, Effect: clusterv1.TaintEffectNoSelect}, foreign[0]}
	})
	b.look("cluster1")
	b.expectTaints("cluster1", kept[0], unavailable)
	b.writes()
	b.look("cluster1")
	if writes := b.writes(); writes > 0 {
		t.Errorf("writes without changes = %d, want 0", writes)
	}
}

// The state of a denied cluster is Unknown until it is accepted again and reports.
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
		t.Errorf("writes without changes = %d, want 0", writes)
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

// Only accepted clusters that have joined are expected to renew a Lease.
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
			t.Errorf("writes to cluster %s = %d, want 0", name, writes)
		}
	}
	b.accept("new")
	b.change("new", func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil })
	b.look("new")
	b.pass(time.Hour)
	b.look("new")
	b.expect("new", clusterv1.ManagedClusterConditionAvailable, "", "")
	b.expectTaints("new", unreachable)

	// A cluster that is accepted again has the full grace period. The same applies to a new cluster
	// of the same name.
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
			t.Errorf("gracePeriod() for %d seconds = %s, want %s", seconds, grace, expected)
		}
	}
}

// Healthy clusters cause no writes.
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
				t.Fatalf("reconcile(%s) = %s, %v, want %s", name, again, err, 5*lease)
			}
		}
	}
	if writes := b.writes(); writes > 0 {
		t.Errorf("writes = %d, want 0", writes)
	}
	if requests := b.hub.Actions(); len(requests) > 0 {
		t.Errorf("requests to the hub = %d, want 0", len(requests))
	}
}
