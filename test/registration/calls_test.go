package registration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestCallsPerAcceptance counts the calls of the server to AWS while no call fails.
func TestCallsPerAcceptance(t *testing.T) {
	h := startAWSHub(t)
	accept := func(t *testing.T, desired irsa.Desired) {
		t.Helper()
		if _, err := h.OCM.ClusterV1().ManagedClusters().Create(t.Context(), claiming(desired), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := h.decide(t.Context(), desired.ClusterName, true); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "ManagedCluster "+desired.ClusterName+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, desired.ClusterName) })
		if err := h.inAWS(desired); err != nil {
			t.Error(err)
		}
	}
	// settled waits until the server has processed all previous changes. It accepts another
	// cluster, which is later in the queue.
	others := 0
	settled := func(t *testing.T) {
		t.Helper()
		others++
		name := fmt.Sprintf("calls-other-%d", others)
		accept(t, h.desired(name, name))
	}
	calls := func(t *testing.T, what string, want ...string) {
		t.Helper()
		if have := h.callsToAWS(false); !slices.Equal(have, want) {
			t.Errorf("calls for %s = %v, want %v", what, have, want)
		}
	}
	first := h.desired("calls-1", "calls-1")

	t.Run("acceptance makes three calls", func(t *testing.T) {
		h.aws.ResetCalls()
		accept(t, first)
		calls(t, "one acceptance", "CreateRole", "PutRolePolicy", "CreateAccessEntry")
	})

	t.Run("other changes make no calls", func(t *testing.T) {
		h.aws.ResetCalls()
		for i := range 50 {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}},"spec":{"leaseDurationSeconds":%d}}`, i, 60+i)
			if _, err := h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), first.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			status := fmt.Appendf(nil, `{"status":{"version":{"kubernetes":"v1.%d.0"}}}`, i)
			if _, err := h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), first.ClusterName, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.decide(t.Context(), first.ClusterName, true); err != nil {
			t.Fatal(err)
		}
		settled(t)
		if about := h.callsAbout(first); len(about) > 0 {
			t.Errorf("calls for %s = %v, want none", first.ClusterName, about)
		}
	})

	t.Run("cluster that is never accepted makes no calls", func(t *testing.T) {
		h.aws.ResetCalls()
		never := h.desired("calls-never", "calls-never")
		if _, err := h.OCM.ClusterV1().ManagedClusters().Create(t.Context(), claiming(never), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := h.decide(t.Context(), never.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		settled(t)
		if err := h.hasAccess(t.Context(), never.ClusterName, noAccess); err != nil {
			t.Error(err)
		}
		if err := h.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), never.ClusterName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "all objects of "+never.ClusterName+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, never.ClusterName) })
		settled(t)
		if about := h.callsAbout(never); len(about) > 0 {
			t.Errorf("calls for %s = %v, want none", never.ClusterName, about)
		}
	})

	t.Run("restart only reads", func(t *testing.T) {
		h.aws.ResetCalls()
		if err := h.Server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the server has read the role and the access entry of "+first.ClusterName, func(context.Context) error {
			if about := h.callsAbout(first); !slices.Contains(about, "GetRole") || !slices.Contains(about, "DescribeAccessEntry") {
				return fmt.Errorf("calls = %v", about)
			}
			return nil
		})
		if writes := h.callsToAWS(true); len(writes) > 0 {
			t.Errorf("writes after a restart = %v, want none", writes)
		}
		settled(t)
		for _, operation := range h.callsAbout(first) {
			if operation != "GetRole" && operation != "GetRolePolicy" && operation != "DescribeAccessEntry" {
				t.Errorf("call for %s after a restart = %s, want GetRole, GetRolePolicy or DescribeAccessEntry", first.ClusterName, operation)
			}
		}
	})

	t.Run("restart repairs foreign changes", func(t *testing.T) {
		if err := h.newIntruder(t).spoil(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if h.inAWS(first) == nil {
			t.Fatal("the identity is as desired, want it changed by the intruder")
		}
		if err := h.Server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the identity of "+first.ClusterName+" is repaired", func(context.Context) error { return h.inAWS(first) })
		// The hub marks the APIService as available some time after the restart.
		var accepted error
		framework.Eventually(t, "the hub serves ManagedClusters", func(ctx context.Context) error {
			if accepted = h.hubAccepts(ctx, first.ClusterName); apierrors.IsServiceUnavailable(accepted) {
				return accepted
			}
			return nil
		})
		if accepted != nil {
			t.Error(accepted)
		}
	})

	t.Run("call that hangs does not delay other clusters", func(t *testing.T) {
		hung := h.desired("calls-hung", "calls-hung")
		release, reached := make(chan struct{}), make(chan struct{}, 100)
		h.aws.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
			if !callIsAbout(call, hung) {
				return fakeaws.Fault{}
			}
			select {
			case reached <- struct{}{}:
			default:
			}
			return fakeaws.Delay(release)
		})
		defer h.aws.SetFaults(nil)
		if _, err := h.OCM.ClusterV1().ManagedClusters().Create(t.Context(), claiming(hung), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := h.decide(t.Context(), hung.ClusterName, true); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
		case <-t.Context().Done():
			t.Fatal("AWS received no call for calls-hung, want one")
		}
		other := h.desired("calls-quick", "calls-quick")
		accept(t, other)
		if err := h.decide(t.Context(), other.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "ManagedCluster "+other.ClusterName+" is denied and cleaned up", func(ctx context.Context) error { return h.isDenied(ctx, other.ClusterName) })
		if about := h.callsAbout(other); !slices.Contains(about, "DeleteAccessEntry") || !slices.Contains(about, "DeleteRole") {
			t.Errorf("calls for %s = %v, want DeleteAccessEntry and DeleteRole", other.ClusterName, about)
		}
		if h.hubAccepts(t.Context(), hung.ClusterName) == nil {
			t.Error("calls-hung is accepted without a role, want condition HubAcceptedManagedCluster not True")
		}
		if err := h.hasAccess(t.Context(), hung.ClusterName, noAccess); err != nil {
			t.Error(err)
		}
		close(release)
		framework.Eventually(t, "ManagedCluster "+hung.ClusterName+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, hung.ClusterName) })
		if err := h.inAWS(hung); err != nil {
			t.Error(err)
		}
	})

	t.Run("denial makes three calls", func(t *testing.T) {
		h.aws.ResetCalls()
		if err := h.decide(t.Context(), first.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "ManagedCluster "+first.ClusterName+" is denied and cleaned up", func(ctx context.Context) error { return h.isDenied(ctx, first.ClusterName) })
		calls(t, "one denial", "DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole")
		if err := h.decide(t.Context(), first.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		settled(t)
		if about := h.callsAbout(first); len(about) != 3 {
			t.Errorf("calls for %s after a second denial = %v, want the 3 of the first", first.ClusterName, about)
		}
	})
}
