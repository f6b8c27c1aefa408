package managedclusterset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/await"
)

func requiring(set *clusterv1beta2.ManagedClusterSet, namespaces ...string) *clusterv1beta2.ManagedClusterSet {
	for _, name := range namespaces {
		set.Spec.ManagedNamespaces = append(set.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: name})
	}
	return set
}

// numbered returns count namespace names.
func numbered(prefix string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return names
}

// listing is a hub with a running NamespaceController.
func listing(t *testing.T, objects ...runtime.Object) *hubWith {
	t.Helper()
	h := newHub(t, objects...)
	h.list(t)
	return h
}

func (h *hubWith) list(t *testing.T) {
	t.Helper()
	controller := NewNamespaceController(h.client.ClusterV1(), h.resolver)
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
}

// wantNamespaces waits until the status of a cluster lists namespaces, each as <set>/<name>.
func (h *hubWith) wantNamespaces(t *testing.T, name string, want ...string) *clusterv1.ManagedCluster {
	t.Helper()
	var cluster *clusterv1.ManagedCluster
	await.Eventually(t, fmt.Sprintf("%s lists %v", name, want), func(ctx context.Context) (err error) {
		if cluster, err = h.client.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if got := namespacesOf(cluster); !slices.Equal(got, want) {
			return fmt.Errorf("managed namespaces = %v", got)
		}
		return nil
	})
	return cluster
}

func namespacesOf(cluster *clusterv1.ManagedCluster) []string {
	var names []string
	for _, namespace := range cluster.Status.ManagedNamespaces {
		names = append(names, namespace.ClusterSet+"/"+namespace.Name)
	}
	return names
}

func (h *hubWith) updateCluster(t *testing.T, cluster *clusterv1.ManagedCluster) {
	t.Helper()
	if _, err := h.client.ClusterV1().ManagedClusters().Update(t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// updateSet updates a set and increments its generation, as a server does.
func (h *hubWith) updateSet(t *testing.T, set *clusterv1beta2.ManagedClusterSet, generation int64) {
	t.Helper()
	set.Generation = generation
	if _, err := h.client.ClusterV1beta2().ManagedClusterSets().Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestNamespacesOfSets(t *testing.T) {
	available := metav1.Condition{Type: clusterv1.ConditionNamespaceAvailable, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonNamespaceApplied}
	h := listing(t, labelledCluster("c1", "prod", "north"), deleted(labelledCluster("c2", "prod", "north")),
		requiring(exclusive("prod"), "shop", "bank"), requiring(exclusive("test"), "lab"), requiring(byRegion("north", "north"), "shop"),
		deleted(requiring(byRegion("leaving", "north"), "gone")), requiring(selecting("unknown", "Legacy", nil), "never"))
	cluster := h.wantNamespaces(t, "c1", "north/shop", "prod/bank", "prod/shop")

	// The conditions that an agent reports are kept while the namespace is listed.
	for i := range cluster.Status.ManagedNamespaces {
		cluster.Status.ManagedNamespaces[i].Conditions = []metav1.Condition{available}
	}
	h.updateCluster(t, cluster)
	// A fake clientset does not detect conflicts, so the controller could overwrite a newer
	// version.
	await.Eventually(t, "the informer of the controller contains the reported conditions", func(context.Context) error {
		seen, err := h.informers.Cluster().V1().ManagedClusters().Lister().Get(cluster.Name)
		if err == nil && (len(seen.Status.ManagedNamespaces) == 0 || len(seen.Status.ManagedNamespaces[0].Conditions) == 0) {
			err = errors.New("no conditions")
		}
		return err
	})
	h.updateSet(t, requiring(exclusive("prod"), "shop", "post"), 2)
	cluster = h.wantNamespaces(t, "c1", "north/shop", "prod/post", "prod/shop")
	for i, want := range []int{1, 0, 1} {
		if got := len(cluster.Status.ManagedNamespaces[i].Conditions); got != want {
			t.Errorf("conditions of %s = %d, want %d", namespacesOf(cluster)[i], got, want)
		}
	}

	// A cluster moves, a set selects other clusters, and a set is deleted.
	cluster.Labels = labelledCluster("c1", "test", "north").Labels
	h.updateCluster(t, cluster)
	h.wantNamespaces(t, "c1", "north/shop", "test/lab")
	h.updateSet(t, requiring(byRegion("north", "south"), "shop"), 2)
	h.wantNamespaces(t, "c1", "test/lab")
	if err := h.client.ClusterV1beta2().ManagedClusterSets().Delete(t.Context(), "test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster = h.wantNamespaces(t, "c1")

	// The list is restored after a change by another client.
	cluster.Status.ManagedNamespaces = []clusterv1.ClusterSetManagedNamespaceConfig{{ClusterSet: "prod", Name: "kube-system"}}
	h.updateCluster(t, cluster)
	h.wantNamespaces(t, "c1")
	// A cluster that is being deleted is not changed.
	h.wantNamespaces(t, "c2")
}

// TestTooManyNamespaces checks that a full list keeps its entries, that a condition reports missing
// entries, and that the list grows when there is room.
func TestTooManyNamespaces(t *testing.T) {
	const of = clusterv1beta2.MaxManagedNamespaces
	h := listing(t, labelledCluster("c1", "prod", "north"),
		requiring(byRegion("m", "north"), numbered("m", of)...), requiring(byRegion("n", "north"), numbered("n", of)...))
	var full []string
	for _, set := range []string{"m", "n"} {
		for _, name := range numbered(set, of) {
			full = append(full, set+"/"+name)
		}
	}
	if len(full) != clusterv1.MaxManagedNamespaces {
		t.Fatalf("listed namespaces = %d, want %d", len(full), clusterv1.MaxManagedNamespaces)
	}
	if cluster := h.wantNamespaces(t, "c1", full...); len(cluster.Status.Conditions) > 0 {
		t.Errorf("conditions of a full list = %v, want none", cluster.Status.Conditions)
	}
	if _, err := h.client.ClusterV1beta2().ManagedClusterSets().Create(t.Context(), requiring(byRegion("a", "north"), "late"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the condition of the cluster reports too many namespaces", func(ctx context.Context) error {
		condition := meta.FindStatusCondition(h.wantNamespaces(t, "c1", full...).Status.Conditions, clusterv1.ManagedClusterConditionNamespacesListed)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != clusterv1.ReasonTooManyNamespaces ||
			condition.Message != "The ManagedClusterSets of the cluster require 201 namespaces, but the status lists at most 200" {
			return fmt.Errorf("condition = %v", condition)
		}
		return nil
	})
	h.updateSet(t, requiring(byRegion("n", "north"), numbered("n", of-1)...), 2)
	if cluster := h.wantNamespaces(t, "c1", append([]string{"a/late"}, full[:len(full)-1]...)...); len(cluster.Status.Conditions) > 0 {
		t.Errorf("conditions of a list that is full again = %v, want none", cluster.Status.Conditions)
	}
}

// TestNamespacesAfterConflict checks that a write that conflicts with an ignored change is retried.
func TestNamespacesAfterConflict(t *testing.T) {
	h := newHub(t, labelledCluster("c1", "prod", "north"), requiring(exclusive("prod"), "shop"))
	outrun := true
	h.client.PrependReactor("update", "managedclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" || !outrun {
			return false, nil, nil
		}
		outrun = false
		return true, nil, apierrors.NewConflict(clusterv1.Resource("managedclusters"), "c1", nil)
	})
	h.list(t)
	h.wantNamespaces(t, "c1", "prod/shop")
	if outrun {
		t.Error("status updates = 0, want at least 1")
	}
}
