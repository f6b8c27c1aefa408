package rehome

import (
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// exported returns an object of an exported kind, with owners.
func exported(kind handover.Kind, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.Name))
	object.SetName(name)
	object.SetUID(types.UID(kind.Name + "/" + name))
	object.SetOwnerReferences(owners)
	return object
}

// TestExportLeavesOutOrphans checks that an object of any kind whose owner does not exist is named and left out, with its
// dependents, and that all other objects are exported.
func TestExportLeavesOutOrphans(t *testing.T) {
	for _, kind := range handover.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			group := kind.Resource.Group
			gone := metav1.OwnerReference{APIVersion: group + "/v9", Kind: kind.Name, Name: "gone\x1b[2J" + strings.Repeat("x", 1<<10), UID: "gone"}
			served := gone
			served.APIVersion = kind.Resource.GroupVersion().String()
			of := func(object *unstructured.Unstructured) metav1.OwnerReference {
				return metav1.OwnerReference{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName(), UID: object.GetUID()}
			}
			good, orphan := exported(kind, "good"), exported(kind, "unserved", gone)
			other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other", UID: "other"}
			unclear := metav1.OwnerReference{APIVersion: "a/b/c", Kind: kind.Name, Name: "unclear", UID: "unclear"}
			deleted := exported(kind, "deleted", served)
			now := metav1.Now()
			deleted.SetDeletionTimestamp(&now)
			dependent := exported(kind, "dependent", of(orphan))
			all := []*unstructured.Unstructured{
				exported(kind, "dependent-of-dependent", of(dependent)), dependent, orphan, exported(kind, "served", served, gone), good,
				exported(kind, "owned", of(good)), exported(kind, "also-owned", gone, of(good)), exported(kind, "others", gone, other), exported(kind, "unclear", unclear), deleted,
			}
			kept, findings := withoutOrphans(all)
			var names []string
			for _, object := range kept {
				names = append(names, object.GetName())
			}
			if want := []string{"good", "owned", "also-owned", "others", "unclear", "deleted"}; !slices.Equal(names, want) {
				t.Errorf("exported objects = %q, want %q", names, want)
			}
			if len(findings) != 4 {
				t.Errorf("findings = %v, want 4", findings)
			}
			for _, f := range findings {
				if f.State != cli.StateWarning || !strings.Contains(f.Cause, kind.Name) || len(f.Cause) > 512 {
					t.Errorf("finding = %+v, want a warning of bounded length that names the owner", f)
				}
			}
		})
	}
}

// TestHubEpoch checks that only accepted clusters have an epoch, that one that no hub can have is a finding, and that the
// record of an adoption takes precedence.
func TestHubEpoch(t *testing.T) {
	clusterOf := func(name, epoch string, accepted bool) *unstructured.Unstructured {
		object := archived(handover.KindManagedCluster, name, name, map[string]any{"spec": map[string]any{"hubAcceptsClient": accepted}})
		object.SetAnnotations(map[string]string{rehoming.EpochAnnotation: epoch})
		return object
	}
	work := archived("ManifestWork", "work", "work", map[string]any{"spec": map[string]any{"hubAcceptsClient": true}})
	work.SetAnnotations(map[string]string{rehoming.EpochAnnotation: "1000/x"})
	strange := archived(handover.KindManagedCluster, "strange", "strange", map[string]any{"spec": map[string]any{"hubAcceptsClient": "true"}})
	objects := []*unstructured.Unstructured{
		clusterOf("pending", "9223372036854775807/x", false), clusterOf("pending2", "500/x", false), work, strange,
		clusterOf("accepted", "7/hub", true), clusterOf("new", "", true), clusterOf("lower", "3/hub", true),
		clusterOf("overflow", "9223372036854775807/x", true), clusterOf("last", "9007199254740992/x", true), clusterOf("sign", "+8/x", true),
	}
	record := func(epoch string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: manifests.HubNamespace, Name: handover.AdoptionState}, Data: map[string]string{handover.AdoptionEpoch: epoch}}
	}
	for name, test := range map[string]struct {
		kube     *fake.Clientset
		want     int64
		findings []string
	}{
		"no adoption":        {fake.NewClientset(), 7, []string{"overflow", "last", "sign"}},
		"an adoption":        {fake.NewClientset(record("2/hub")), 2, nil},
		"a damaged adoption": {fake.NewClientset(record("two")), 7, []string{"overflow", "last", "sign", handover.AdoptionState}},
	} {
		got, findings, err := hubEpoch(t.Context(), test.kube, objects)
		if err != nil || got != test.want || len(findings) != len(test.findings) {
			t.Errorf("hubEpoch(%s) = %d, %v, %v, want %d and findings about %q", name, got, findings, err, test.want, test.findings)
			continue
		}
		for i, f := range findings {
			if f.State != cli.StateWarning || !strings.Contains(f.Subject, test.findings[i]) {
				t.Errorf("hubEpoch(%s): finding %+v, want a warning about %s", name, f, test.findings[i])
			}
		}
	}
}

// TestAdoptionEpochIsHigher checks that the epoch of a new hub follows that of the exported one, or that the command refuses.
func TestAdoptionEpochIsHigher(t *testing.T) {
	state := func(epoch string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: manifests.HubNamespace, Name: handover.AdoptionState}, Data: map[string]string{
			adoptionArchive: "id", handover.AdoptionEpoch: epoch, adoptionTime: "2026-01-01T00:00:00Z", handover.AdoptionPhase: phaseImporting,
		}}
	}
	for name, test := range map[string]struct {
		exported, number int64
		state            *corev1.ConfigMap
		want             int64
		err              string
	}{
		"first":                          {exported: 0, want: 1},
		"next":                           {exported: 7, want: 8},
		"chosen":                         {exported: 7, number: 100, want: 100},
		"chosen too low":                 {exported: 7, number: 7, err: "--epoch must be higher"},
		"the last":                       {exported: rehoming.MaxEpochNumber - 1, want: rehoming.MaxEpochNumber},
		"after the last":                 {exported: rehoming.MaxEpochNumber, err: "not that of a hub"},
		"poisoned":                       {exported: math.MaxInt64, err: "not that of a hub"},
		"almost poisoned":                {exported: math.MaxInt64 - 1, err: "not that of a hub"},
		"negative":                       {exported: math.MinInt64, err: "not that of a hub"},
		"poisoned, chosen":               {exported: math.MaxInt64, number: 8, err: "not that of a hub"},
		"continued":                      {exported: 7, state: state("8/a"), want: 8},
		"continued with a number":        {exported: 7, number: 9, state: state("9/a"), want: 9},
		"continued with another number":  {exported: 7, number: 10, state: state("9/a"), err: "cannot change"},
		"continued from a wrapped epoch": {exported: 7, state: state("0/a"), err: "must be at least 8"},
		"continued from a damaged epoch": {exported: 7, state: state("-8/a"), err: "not an epoch"},
	} {
		kube := fake.NewClientset()
		if test.state != nil {
			kube = fake.NewClientset(test.state)
		}
		a := &adoption{number: test.number, Clients: &cli.Clients{Kube: kube}, archive: &archive{ID: "id", Epoch: test.exported}}
		err := a.resume(t.Context())
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: resume() = %v with epoch %d, want an error that contains %q", name, err, a.epoch.Number, test.err)
			}
		case err != nil || a.epoch.Number != test.want:
			t.Errorf("%s: epoch = %d, %v, want %d", name, a.epoch.Number, err, test.want)
		}
	}
}
