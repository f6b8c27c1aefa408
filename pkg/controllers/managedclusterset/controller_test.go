package managedclusterset

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// controlled is a hub with a running Controller.
func controlled(t *testing.T, objects ...runtime.Object) *hubWith {
	t.Helper()
	h := newHub(t, objects...)
	controller := NewController(h.client.ClusterV1beta2(), h.resolver)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

func (h *hubWith) wantEmpty(t *testing.T, set string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("set %s has the message %q", set, message), func(ctx context.Context) error {
		set, err := h.client.ClusterV1beta2().ManagedClusterSets().Get(ctx, set, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(set.Status.Conditions, clusterv1beta2.ConditionClusterSetEmpty)
		if got == nil || got.Status != status || got.Reason != reason || got.Message != message || got.ObservedGeneration != set.Generation {
			return fmt.Errorf("conditions = %v", set.Status.Conditions)
		}
		return nil
	})
}

func (h *hubWith) wantBound(t *testing.T, namespace, name string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("the condition of binding %s in %s has status %s", name, namespace, status), func(ctx context.Context) error {
		binding, err := h.client.ClusterV1beta2().ManagedClusterSetBindings(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(binding.Status.Conditions, clusterv1beta2.ConditionBound)
		if got == nil || got.Status != status || got.Reason != reason {
			return fmt.Errorf("conditions = %v", binding.Status.Conditions)
		}
		return nil
	})
}

func TestController(t *testing.T) {
	ctx := t.Context()
	h := controlled(t, labelledCluster("c1", "prod", "north"), exclusive("prod"), exclusive("test"), bound("team", "prod"), bound("team", "absent"))
	sets, clusters := h.client.ClusterV1beta2().ManagedClusterSets(), h.client.ClusterV1().ManagedClusters()

	h.wantEmpty(t, "prod", metav1.ConditionFalse, "ClustersSelected", "1 ManagedClusters selected")
	h.wantEmpty(t, "test", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "default", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "global", metav1.ConditionFalse, "ClustersSelected", "1 ManagedClusters selected")
	h.wantBound(t, "team", "prod", metav1.ConditionTrue, "ClusterSetBound")
	h.wantBound(t, "team", "absent", metav1.ConditionFalse, "ClusterSetNotFound")

	// If a cluster moves, the status of its previous set and of its new set change.
	if _, err := clusters.Update(ctx, labelledCluster("c1", "test", "north"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantEmpty(t, "prod", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "test", metav1.ConditionFalse, "ClustersSelected", "1 ManagedClusters selected")
	if _, err := clusters.Create(ctx, labelledCluster("c2", "test", "north"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantEmpty(t, "test", metav1.ConditionFalse, "ClustersSelected", "2 ManagedClusters selected")
	for _, name := range []string{"c1", "c2"} {
		if err := clusters.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h.wantEmpty(t, "test", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "global", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")

	if _, err := sets.Create(ctx, exclusive("absent"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantBound(t, "team", "absent", metav1.ConditionTrue, "ClusterSetBound")
	for _, name := range []string{"absent", "default", "global"} {
		if err := sets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h.wantBound(t, "team", "absent", metav1.ConditionFalse, "ClusterSetNotFound")
	h.wantEmpty(t, "default", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "global", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
}

// TestNothingIsWrittenTwice checks that a status that does not change is not written again.
func TestNothingIsWrittenTwice(t *testing.T) {
	h := controlled(t, labelledCluster("c1", "prod", "north"), exclusive("prod"), bound("team", "prod"))
	h.wantEmpty(t, "prod", metav1.ConditionFalse, "ClustersSelected", "1 ManagedClusters selected")
	h.wantBound(t, "team", "prod", metav1.ConditionTrue, "ClusterSetBound")
	h.wantEmpty(t, "default", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")
	h.wantEmpty(t, "global", metav1.ConditionFalse, "ClustersSelected", "1 ManagedClusters selected")

	// Two changes that affect no status, and then a new set. The status of the new set shows that
	// the earlier events were received.
	sets := h.client.ClusterV1beta2().ManagedClusterSets()
	prod, err := sets.Get(t.Context(), "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prod.Annotations = map[string]string{"changed": "yes"}
	if _, err := sets.Update(t.Context(), prod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	reported := labelledCluster("c1", "prod", "north")
	reported.Status.Version.Kubernetes = "v1.36.3"
	if _, err := h.client.ClusterV1().ManagedClusters().Update(t.Context(), reported, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sets.Create(t.Context(), exclusive("marker"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantEmpty(t, "marker", metav1.ConditionTrue, "NoClusterMatched", "No ManagedCluster selected")

	writes := map[string]int{}
	for _, action := range h.client.Actions() {
		if action.GetSubresource() == "status" {
			writes[action.GetResource().Resource]++
		}
	}
	if writes["managedclustersets"] != 4 || writes["managedclustersetbindings"] != 1 {
		t.Errorf("status writes = %v, want 4 for sets and 1 for bindings", writes)
	}
}
