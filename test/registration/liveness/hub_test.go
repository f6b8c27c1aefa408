package liveness_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/liveness"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestLivenessOnAHub checks the conditions and taints of a cluster while its agent renews its
// Lease, stops and renews it again. The Lease is stored in a real hub, and the cluster in a real
// server.
func TestLivenessOnAHub(t *testing.T) {
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub", NoControllerManager: true})
	hub := framework.Must(kubernetes.NewForConfig(cluster.AdminConfig()))(t)
	holdControllers(t, hub)
	process := framework.OwnServer(t, localhub.APIServerOptions{Hub: cluster, Dir: t.TempDir()})
	server := framework.Direct(t, process)
	// The condition of the clock is the server's own.
	own := framework.OCMClient(t, framework.Must(process.UserConfig(user.APIServerUser, user.SystemPrivilegedGroup))(t), nil)

	hubInformers := informers.NewSharedInformerFactoryWithOptions(hub, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = clusterv1.ClusterNameLabel
	}))
	serverInformers := externalversions.NewSharedInformerFactory(server, 0)
	clock := clocktesting.NewFakeClock(time.Now())
	controller := liveness.NewController(liveness.Options{
		Clusters: own.ClusterV1(), ClusterInformer: serverInformers.Cluster().V1().ManagedClusters(),
		Leases: hub.CoordinationV1(), LeaseInformer: hubInformers.Coordination().V1().Leases(), Clock: clock,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		hubInformers.Shutdown()
		serverInformers.Shutdown()
	})
	hubInformers.Start(ctx.Done())
	serverInformers.Start(ctx.Done())
	running.Go(func() { controller.Run(ctx) })

	clusters := server.ClusterV1().ManagedClusters()
	_, err := clusters.Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, Taints: []clusterv1.Taint{
			{Key: "example.com/maintenance", Effect: clusterv1.TaintEffectNoSelect},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	report := func(conditions ...metav1.Condition) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			current, err := clusters.Get(t.Context(), "cluster1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range conditions {
				meta.SetStatusCondition(&current.Status.Conditions, condition)
			}
			_, err = clusters.UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, status metav1.ConditionStatus, taints ...string) {
		t.Helper()
		await.Eventually(t, what, func() error {
			// Without renewals, time makes a cluster unreachable. In all other states it does not pass.
			if slices.Contains(taints, liveness.TaintUnreachable) {
				clock.Step(time.Minute)
			}
			current, err := clusters.Get(t.Context(), "cluster1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			has := map[string]bool{}
			for _, taint := range current.Spec.Taints {
				has[taint.Key] = !taint.TimeAdded.IsZero()
			}
			ok := len(has) == len(taints)
			for _, taint := range taints {
				ok = ok && has[taint]
			}
			available := meta.FindStatusCondition(current.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
			if status == "" {
				ok = ok && available == nil
			} else {
				ok = ok && available != nil && available.Status == status
			}
			if !ok {
				return fmt.Errorf("taints = %v, condition Available = %v, want taints %v and status %q", current.Spec.Taints, available, taints, status)
			}
			return nil
		})
	}
	const maintenance = "example.com/maintenance"
	expect("cluster1 is unreachable without a condition", "", maintenance, liveness.TaintUnreachable)

	// The server may have created both already.
	if _, err := hub.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	leases := hub.CoordinationV1().Leases("cluster1")
	if _, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registration.LeaseName}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	renew := func(ctx context.Context) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"cluster1"}},"spec":{"renewTime":%q}}`, clusterv1.ClusterNameLabel, clock.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := leases.Patch(ctx, registration.LeaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}

	// The agent renews the Lease before it reports.
	if err := renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent, stopAgent := context.WithCancel(t.Context())
	defer stopAgent()
	var renewing sync.WaitGroup
	renewing.Go(func() {
		wait.UntilWithContext(agent, func(ctx context.Context) {
			clock.Step(time.Second)
			if err := renew(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}, 200*time.Millisecond)
	})
	report(
		metav1.Condition{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue, Reason: "ManagedClusterJoined"},
		metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable"})
	expect("cluster1 is available", metav1.ConditionTrue, maintenance)
	await.Eventually(t, "the clock of cluster1 is synchronized", func() error {
		current, err := clusters.Get(t.Context(), "cluster1", metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(current.Status.Conditions, clusterv1.ManagedClusterConditionClockSynced) {
			return fmt.Errorf("conditions = %v", current.Status.Conditions)
		}
		return err
	})

	stopAgent()
	renewing.Wait()
	expect("cluster1 is unreachable after its agent stopped", metav1.ConditionUnknown, maintenance, liveness.TaintUnreachable)
	if err := renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	report(metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionFalse, Reason: "ManagedClusterKubeAPIServerUnavailable"})
	expect("cluster1 is unavailable", metav1.ConditionFalse, maintenance, liveness.TaintUnavailable)
}

// holdControllers makes another replica the leader, for longer than the test. The controllers of the server use the real
// clock, and would write the conditions that the controller with the other clock writes.
func holdControllers(t *testing.T, hub kubernetes.Interface) {
	t.Helper()
	if err := framework.MakeNamespace(t.Context(), hub, localhub.HubNamespace); err != nil {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "hub-apiserver-controllers"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another-replica"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now},
	}
	framework.Must(hub.CoordinationV1().Leases(localhub.HubNamespace).Create(t.Context(), lease, metav1.CreateOptions{}))(t)
}
