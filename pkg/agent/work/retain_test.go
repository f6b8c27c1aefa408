package work

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// confirmedHub returns a controller and its hub, which was restored from a snapshot. The restore is
// confirmed, and before is called just before the hub returns the confirmation to retain.
func confirmedHub(t *testing.T, before func(*fake.Clientset)) *Controller {
	t.Helper()
	hub := fake.NewSimpleClientset(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster1", Annotations: map[string]string{clusterv1.RestoredAnnotation: "1", clusterv1.RestoreConfirmedAnnotation: "1"},
	}})
	guard := restored.New(restored.Config{ClusterName: "cluster1", Clusters: hub.ClusterV1().ManagedClusters()})
	if err := guard.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	hub.PrependReactor("get", "managedclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		before(hub)
		return false, nil, nil
	})
	return &Controller{Config: Config{ClusterName: "cluster1", Hub: hub, Restored: guard}}
}

// TestConfirmedAfterExtension checks that an object whose manifest is added just before the confirmation
// of a restore is not removed, although the pass does not know the manifest yet.
func TestConfirmedAfterExtension(t *testing.T) {
	left := []workv1.AppliedManifestResourceMeta{{Version: "v1", Resource: "configmaps", Namespace: "n", Name: "b"}}
	for name, test := range map[string]struct {
		uid        types.UID
		generation int64
		outdated   bool
	}{
		"unchanged": {uid: "u", generation: 1},
		"extended":  {uid: "u", generation: 2, outdated: true},
		"replaced":  {uid: "other", generation: 1, outdated: true},
	} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "w", UID: "u", Generation: 1}}
		c := confirmedHub(t, func(hub *fake.Clientset) {
			latest := work.DeepCopy()
			latest.UID, latest.Generation = test.uid, test.generation
			if err := hub.Tracker().Add(latest); err != nil {
				t.Error(err)
			}
		})
		p := &pass{Controller: c, work: work, st: &workState{}}
		kept, removable, err := p.retain(t.Context(), left)
		if errors.Is(err, reconcile.ErrOutdated) != test.outdated || test.outdated != (len(kept) == 1) || test.outdated == (len(removable) == 1) {
			t.Errorf("%s: retain() = %v, %v, %v, want outdated = %t", name, kept, removable, err, test.outdated)
		}
		if test.outdated && p.st.compared {
			t.Errorf("%s: the pass counts as the first one, want it to be repeated", name)
		}
	}
}

// TestConfirmedAfterCreation checks that the objects of a ManifestWork that is created just before the
// confirmation of a restore stay.
func TestConfirmedAfterCreation(t *testing.T) {
	record := &workv1.AppliedManifestWork{Spec: workv1.AppliedManifestWorkSpec{ManifestWorkName: "w"}}
	for _, created := range []bool{false, true} {
		c := confirmedHub(t, func(hub *fake.Clientset) {
			if !created {
				return
			}
			if err := hub.Tracker().Add(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "w"}}); err != nil {
				t.Error(err)
			}
		})
		if retained, err := c.retainRecord(t.Context(), &workState{}, record); retained || errors.Is(err, reconcile.ErrOutdated) != created {
			t.Errorf("retainRecord() of a ManifestWork that was created before the confirmation = %t: %t, %v, want outdated = %t", created, retained, err, created)
		}
	}
}
