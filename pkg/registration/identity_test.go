package registration

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	registerlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// verifyingDriver is a Driver that counts verifications.
type verifyingDriver struct {
	Driver
	verified int
	err      error
}

func (*verifyingDriver) Name() registerv1alpha1.RegistrationDriver {
	return registerv1alpha1.DriverAWSIRSA
}

func (*verifyingDriver) Refuses(*registerv1alpha1.ManagedClusterRegistration) string { return "" }

func (d *verifyingDriver) Provision(_ context.Context, _ *registerv1alpha1.ManagedClusterRegistration, verify bool) error {
	if verify {
		d.verified++
	}
	return d.err
}

// storedRecords is the Records of one registration, which the controller reads from a cache too.
type storedRecords struct {
	Records
	cached cache.Indexer
}

func (r *storedRecords) Update(_ context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	record, err := registerlisters.NewManagedClusterRegistrationLister(r.cached).Get(cluster)
	if err != nil {
		return nil, err
	}
	update := record.DeepCopy()
	if err := change(update); err != nil {
		return nil, err
	}
	return update, r.cached.Update(update)
}

// TestIdentitiesAreVerified checks that the server verifies the identity of each cluster at least every 30 minutes, and
// when it becomes the leader: so it repairs what others changed in AWS.
func TestIdentitiesAreVerified(t *testing.T) {
	informers := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	clusters, registrations := informers.Cluster().V1().ManagedClusters(), informers.Register().V1alpha1().ManagedClusterRegistrations()
	records := registrations.Informer().GetIndexer()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	record := &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "2"},
		Spec:       registerv1alpha1.ManagedClusterRegistrationSpec{Driver: registerv1alpha1.DriverAWSIRSA, ManagedClusterUID: "1"},
		Status: registerv1alpha1.ManagedClusterRegistrationStatus{Conditions: []metav1.Condition{
			condition(registerv1alpha1.RegistrationIdentityReady, metav1.ConditionTrue, registerv1alpha1.ReasonProvisioned, "The identity of the cluster is provisioned."),
		}},
	}
	if err := errors.Join(clusters.Informer().GetIndexer().Add(cluster), records.Add(record)); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	driver := &verifyingDriver{}
	i := &identities{driver: driver, loop: reconcile.Loop{}, controller: &Controller{
		Options: Options{Records: &storedRecords{cached: records}, ClusterInformer: clusters, Registrations: registrations, Clock: clock},
	}}
	lead := func() {
		ended, end := context.WithCancel(t.Context())
		end()
		i.run(ended)
	}
	reconciled := func(when string, verified int, wantErr error) time.Duration {
		t.Helper()
		before := driver.verified
		again, err := i.reconcile(t.Context(), cache.ObjectName{Name: "cluster1"})
		if !errors.Is(err, wantErr) || driver.verified-before != verified {
			t.Fatalf("reconcile() %s = %v with %d verifications, want %v with %d", when, err, driver.verified-before, wantErr, verified)
		}
		return again
	}

	lead()
	for range 100 {
		again := reconciled("when the verification is due", 1, nil)
		if again <= 0 || again > 30*time.Minute {
			t.Fatalf("time to the next verification = %s, want at most 30m0s", again)
		}
		clock.SetTime(clock.Now().Add(again - 1))
		reconciled("before the verification is due", 0, nil)
		clock.SetTime(clock.Now().Add(1))
	}
	reconciled("when the verification is due", 1, nil)
	lead()
	reconciled("of a new leader", 1, nil)

	clock.SetTime(clock.Now().Add(30 * time.Minute))
	driver.err = errors.New("AWS does not respond")
	reconciled("while AWS does not respond", 1, driver.err)
	if stored, err := registrations.Lister().Get("cluster1"); err != nil || !ready(stored) {
		t.Errorf("registration after a failed verification = %+v, %v, want a cluster that keeps its identity", stored, err)
	}
	driver.err = nil
	reconciled("after a failed verification", 1, nil)
}

// TestIdentityOfOtherClusters checks that only the accepted cluster of a registration has its identity, and not a cluster
// that was created again with its name.
func TestIdentityOfOtherClusters(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration)
		want   bool
	}{
		"accepted": {func(*clusterv1.ManagedCluster, *registerv1alpha1.ManagedClusterRegistration) {}, true},
		"denied": {func(cluster *clusterv1.ManagedCluster, _ *registerv1alpha1.ManagedClusterRegistration) {
			cluster.Spec.HubAcceptsClient = false
		}, false},
		"deleted": {func(cluster *clusterv1.ManagedCluster, _ *registerv1alpha1.ManagedClusterRegistration) {
			cluster.DeletionTimestamp = &now
		}, false},
		"created again": {func(cluster *clusterv1.ManagedCluster, _ *registerv1alpha1.ManagedClusterRegistration) {
			cluster.UID = "2"
		}, false},
		"withdrawn": {func(_ *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) {
			record.Spec.IRSA.Withdrawn = true
		}, false},
	} {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		record := &registerv1alpha1.ManagedClusterRegistration{Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			ManagedClusterUID: "1", IRSA: &registerv1alpha1.IRSAClaim{},
		}}
		test.change(cluster, record)
		if got := entitled(cluster, record); got != test.want {
			t.Errorf("entitled() of a cluster that is %s = %t, want %t", name, got, test.want)
		}
	}
	if entitled(nil, &registerv1alpha1.ManagedClusterRegistration{}) {
		t.Error("entitled() without a cluster = true, want false")
	}
}
