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

// TestCallsPerAcceptance counts what the server asks AWS for while nothing fails.
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
		framework.Eventually(t, desired.ClusterName+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, desired.ClusterName) })
		if err := h.inAWS(desired); err != nil {
			t.Error(err)
		}
	}
	// settled returns once the server has looked at all that was changed before: another
	// cluster, which was changed later, is accepted.
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
			t.Errorf("%s: the calls are %v, not %v", what, have, want)
		}
	}
	first := h.desired("calls-1", "calls-1")

	t.Run("an acceptance takes as many as its plan has", func(t *testing.T) {
		h.aws.ResetCalls()
		accept(t, first)
		var plan []string
		for _, call := range irsa.PlanProvision(first, nil) {
			plan = append(plan, string(call.Operation))
		}
		if len(plan) != 3 {
			t.Errorf("the plan is %v", plan)
		}
		calls(t, "one acceptance", plan...)
	})

	t.Run("changes that are not about it take none", func(t *testing.T) {
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
			t.Errorf("the calls for it are %v", about)
		}
	})

	t.Run("one that never was accepted takes none", func(t *testing.T) {
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
		framework.Eventually(t, "nothing of it is left", func(ctx context.Context) error { return h.isGone(ctx, never.ClusterName) })
		settled(t)
		if about := h.callsAbout(never); len(about) > 0 {
			t.Errorf("the calls for it are %v", about)
		}
	})

	t.Run("a restart only reads", func(t *testing.T) {
		h.aws.ResetCalls()
		if err := h.Server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the server has looked at what AWS has", func(context.Context) error {
			if about := h.callsAbout(first); !slices.Contains(about, "GetRole") || !slices.Contains(about, "DescribeAccessEntry") {
				return fmt.Errorf("the calls are %v", about)
			}
			return nil
		})
		if writes := h.callsToAWS(true); len(writes) > 0 {
			t.Errorf("the calls that write are %v", writes)
		}
		settled(t)
		for _, operation := range h.callsAbout(first) {
			if operation != "GetRole" && operation != "GetRolePolicy" && operation != "DescribeAccessEntry" {
				t.Errorf("a call is %s", operation)
			}
		}
	})

	t.Run("a restart repairs what was changed", func(t *testing.T) {
		if err := h.newIntruder(t).spoil(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if h.inAWS(first) == nil {
			t.Fatal("nothing is spoilt")
		}
		if err := h.Server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "it is repaired", func(context.Context) error { return h.inAWS(first) })
		// The hub finds out after a while that the server is back.
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

	t.Run("others do not wait for one that hangs", func(t *testing.T) {
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
			t.Fatal("AWS is not asked")
		}
		other := h.desired("calls-quick", "calls-quick")
		accept(t, other)
		if err := h.decide(t.Context(), other.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the other one is denied altogether", func(ctx context.Context) error { return h.isDenied(ctx, other.ClusterName) })
		if about := h.callsAbout(other); !slices.Contains(about, "DeleteAccessEntry") || !slices.Contains(about, "DeleteRole") {
			t.Errorf("the calls for the other one are %v", about)
		}
		if h.hubAccepts(t.Context(), hung.ClusterName) == nil {
			t.Error("the cluster is accepted whose role was not made")
		}
		if err := h.hasAccess(t.Context(), hung.ClusterName, noAccess); err != nil {
			t.Error(err)
		}
		close(release)
		framework.Eventually(t, "the one that hung is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, hung.ClusterName) })
		if err := h.inAWS(hung); err != nil {
			t.Error(err)
		}
	})

	t.Run("a denial takes as many as its plan has", func(t *testing.T) {
		h.aws.ResetCalls()
		if err := h.decide(t.Context(), first.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "its registration is cleaned up", func(ctx context.Context) error { return h.isDenied(ctx, first.ClusterName) })
		calls(t, "one denial", "DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole")
		if err := h.decide(t.Context(), first.ClusterName, false); err != nil {
			t.Fatal(err)
		}
		settled(t)
		if about := h.callsAbout(first); len(about) != 3 {
			t.Errorf("denied again, the calls for it are %v", about)
		}
	})
}
