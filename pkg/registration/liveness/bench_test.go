package liveness

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

const lease = 60 * time.Second

// bench runs reconciliations of a controller at the times that the test sets.
type bench struct {
	*Controller
	t        *testing.T
	clock    *clocktesting.FakeClock
	server   *fake.Clientset
	hub      *kubefake.Clientset
	clusters cache.Indexer
	leases   cache.Indexer
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)), server: fake.NewSimpleClientset(), hub: kubefake.NewClientset()}
	b.restart()
	return b
}

// restart creates a controller without observations, with the same caches.
func (b *bench) restart() {
	clusters := externalversions.NewSharedInformerFactory(b.server, 0).Cluster().V1().ManagedClusters()
	leases := informers.NewSharedInformerFactory(b.hub, 0).Coordination().V1().Leases()
	for from, to := range map[cache.Indexer]cache.Indexer{b.clusters: clusters.Informer().GetIndexer(), b.leases: leases.Informer().GetIndexer()} {
		if from == nil {
			continue
		}
		if err := to.Replace(from.List(), ""); err != nil {
			b.t.Fatal(err)
		}
	}
	b.clusters, b.leases = clusters.Informer().GetIndexer(), leases.Informer().GetIndexer()
	b.Controller = NewController(Options{
		Clusters: b.server.ClusterV1(), ClusterInformer: clusters,
		Leases: b.hub.CoordinationV1(), LeaseInformer: leases, Clock: b.clock,
	})
}

func (b *bench) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

func condition(kind string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Unix(0, 0))}
}

// accept adds a cluster that has joined.
func (b *bench) accept(name string, conditions ...metav1.Condition) {
	b.t.Helper()
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: new(int32(lease.Seconds()))},
		Status:     clusterv1.ManagedClusterStatus{Conditions: append(conditions, condition(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue))},
	}
	if _, err := b.server.ClusterV1().ManagedClusters().Create(b.t.Context(), cluster, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) get(name string) *clusterv1.ManagedCluster {
	b.t.Helper()
	cluster, err := b.server.ClusterV1().ManagedClusters().Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return cluster.DeepCopy()
}

func (b *bench) change(name string, change func(*clusterv1.ManagedCluster)) {
	b.t.Helper()
	cluster := b.get(name)
	change(cluster)
	if _, err := b.server.ClusterV1().ManagedClusters().Update(b.t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// report sets the condition Available as an agent does.
func (b *bench) report(name string, status metav1.ConditionStatus) {
	b.change(name, func(c *clusterv1.ManagedCluster) {
		meta.SetStatusCondition(&c.Status.Conditions, condition(clusterv1.ManagedClusterConditionAvailable, status))
	})
}

// renewal returns a Lease that is renewed now by a clock with the given skew.
func (b *bench) renewal(name string, skew time.Duration) *coordinationv1.Lease {
	renewed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: registration.LeaseName}}
	renewed.Spec.RenewTime = new(metav1.NewMicroTime(b.clock.Now().Add(skew)))
	return renewed
}

// renewOnHub renews a Lease on the hub, but not in the cache.
func (b *bench) renewOnHub(name string, skew time.Duration) *coordinationv1.Lease {
	b.t.Helper()
	renewed := b.renewal(name, skew)
	leases := b.hub.CoordinationV1().Leases(name)
	_, err := leases.Update(b.t.Context(), renewed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(b.t.Context(), renewed, metav1.CreateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return renewed
}

func (b *bench) renew(name string, skew time.Duration) {
	b.t.Helper()
	if err := b.leases.Update(b.renewOnHub(name, skew)); err != nil {
		b.t.Fatal(err)
	}
}

// look reconciles a cluster with an up-to-date cache of clusters, and returns the time to
// the next reconciliation.
func (b *bench) look(name string) time.Duration {
	b.t.Helper()
	again, err := b.tryToLook(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return again
}

func (b *bench) tryToLook(name string) (time.Duration, error) {
	b.t.Helper()
	if err := b.clusters.Update(b.get(name)); err != nil {
		b.t.Fatal(err)
	}
	return b.reconcile(b.t.Context(), cache.ObjectName{Name: name})
}

func (b *bench) expect(name, kind string, status metav1.ConditionStatus, reason string) {
	b.t.Helper()
	found := meta.FindStatusCondition(b.get(name).Status.Conditions, kind)
	if status == "" && found == nil {
		return
	}
	if found == nil || found.Status != status || found.Reason != reason {
		b.t.Errorf("condition %s of %s = %v, want %s, %s", kind, name, found, status, reason)
	}
}

func (b *bench) expectAvailable(name string, status metav1.ConditionStatus) {
	b.t.Helper()
	reason := "Test"
	if status == metav1.ConditionUnknown {
		reason = ReasonLeaseUpdateStopped
	}
	b.expect(name, clusterv1.ManagedClusterConditionAvailable, status, reason)
}

func (b *bench) expectTaints(name string, expected ...string) {
	b.t.Helper()
	var taints []string
	for _, taint := range b.get(name).Spec.Taints {
		taints = append(taints, taint.Key+":"+string(taint.Effect))
	}
	if !slices.Equal(taints, expected) {
		b.t.Errorf("taints of %s = %q, want %q", name, taints, expected)
	}
}

// writes returns the number of writes to the server since the last call.
func (b *bench) writes() int {
	writes := 0
	for _, action := range b.server.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			writes++
		}
	}
	b.server.ClearActions()
	return writes
}

const (
	unreachable = TaintUnreachable + ":NoSelect"
	unavailable = TaintUnavailable + ":NoSelect"
)

var available = condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue)
