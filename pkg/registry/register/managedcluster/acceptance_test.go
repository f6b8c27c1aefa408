package managedcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
)

func decision(cluster string, accepted bool, change ...func(*registerv1alpha1.ManagedClusterAcceptance)) *registerv1alpha1.ManagedClusterAcceptance {
	a := &registerv1alpha1.ManagedClusterAcceptance{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	a.Spec.Accepted = accepted
	for _, change := range change {
		change(a)
	}
	return a
}

func because(reason string) func(*registerv1alpha1.ManagedClusterAcceptance) {
	return func(a *registerv1alpha1.ManagedClusterAcceptance) { a.Spec.Reason = reason }
}

func (h *hub) create(t *testing.T, mc *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	t.Helper()
	created, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (h *hub) get(t *testing.T, name string) *clusterv1.ManagedCluster {
	t.Helper()
	mc, err := h.admin(t).ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return mc
}

func (h *hub) put(t *testing.T, a *registerv1alpha1.ManagedClusterAcceptance) *registerv1alpha1.ManagedClusterAcceptance {
	t.Helper()
	out, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), a.Name, a, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const accepting, denying = `{"spec":{"hubAcceptsClient":true}}`, `{"spec":{"hubAcceptsClient":false}}`

func hubAccepted(mc *clusterv1.ManagedCluster) *metav1.Condition {
	return meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
}

// remove deletes a ManagedCluster that never was accepted, and takes its finalizer, as the controller does.
func (h *hub) remove(t *testing.T, name string) {
	t.Helper()
	clusters := h.admin(t).ClusterV1().ManagedClusters()
	if err := clusters.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clusters.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func held(mc *clusterv1.ManagedCluster) bool {
	return slices.Contains(mc.Finalizers, clusterv1.ManagedClusterFinalizer)
}

func TestAccept(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	if mc := h.get(t, "c1"); !held(mc) || mc.Status.Acceptance != nil {
		t.Fatalf("nobody has decided yet: %+v", mc)
	}

	accepts := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations()
	dry, err := accepts.Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || !dry.Spec.Accepted || len(dry.Status.ApprovedRequests) > 0 {
		t.Errorf("dry-run: %+v %v", dry, err)
	}
	if mc := h.get(t, "c1"); mc.Spec.HubAcceptsClient || mc.Status.Acceptance != nil {
		t.Fatal("a dry-run has accepted the cluster")
	}

	out := h.put(t, decision("c1", true, because("new"), func(a *registerv1alpha1.ManagedClusterAcceptance) { a.Spec.Requesters = []string{"somebody"} }))
	mc := h.get(t, "c1")
	if !out.Spec.Accepted || out.UID != mc.UID || out.ResourceVersion != mc.ResourceVersion || out.Status.DecidedBy != "admin" ||
		out.Status.DecidedAt == nil || out.Status.Driver != registerv1alpha1.DriverCSR || !slices.Equal(out.Status.ApprovedRequests, []string{"c1-request"}) {
		t.Errorf("answer: %+v", out)
	}
	a := mc.Status.Acceptance
	if !mc.Spec.HubAcceptsClient || !held(mc) || mc.Generation != 2 || a == nil || !a.Accepted || !a.EverAccepted || a.DecidedBy != "admin" || a.Reason != "new" ||
		!slices.Equal(a.Requesters, []string{"somebody"}) || a.DecidedAt.IsZero() {
		t.Errorf("accepted: %+v %+v", mc, a)
	}
	out = h.put(t, decision("c1", false, because("retired")))
	mc = h.get(t, "c1")
	condition := hubAccepted(mc)
	if out.Spec.Accepted || mc.Spec.HubAcceptsClient || mc.Status.Acceptance.Accepted || !mc.Status.Acceptance.EverAccepted || mc.Status.Acceptance.Left || !held(mc) ||
		condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != clusterv1.ReasonHubClusterAdminDenied ||
		!strings.Contains(condition.Message, "admin") || !strings.Contains(condition.Message, "retired") || condition.ObservedGeneration != mc.Generation {
		t.Errorf("denied: %+v %+v", mc, condition)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked %v in the request that denies", got)
	}
}

// TestAcceptAgain checks that to accept an accepted cluster is a new decision, which pending requests are approved with.
func TestAcceptAgain(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	h.put(t, decision("c1", true))
	before := h.get(t, "c1")
	h.put(t, decision("c1", true, func(a *registerv1alpha1.ManagedClusterAcceptance) { a.Spec.Requesters = []string{"other"} }))
	after := h.get(t, "c1")
	if !slices.Equal(after.Status.Acceptance.Requesters, []string{"other"}) || after.Status.Acceptance.DecidedAt.Before(&before.Status.Acceptance.DecidedAt) || after.Generation != before.Generation {
		t.Errorf("before %+v, after %+v", before.Status.Acceptance, after.Status.Acceptance)
	}
	// A change of anything else decides nothing.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":75}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.get(t, "c1").Status.Acceptance; got.DecidedAt != after.Status.Acceptance.DecidedAt || !slices.Equal(got.Requesters, []string{"other"}) {
		t.Errorf("got %+v", got)
	}
}

func TestAcceptRefused(t *testing.T) {
	h := startHub(t)
	mc := h.create(t, newCluster("c1"))
	accepts := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations()
	for what, test := range map[string]struct {
		name    string
		change  func(*registerv1alpha1.ManagedClusterAcceptance)
		refused func(error) bool
	}{
		"no such cluster": {"c0", func(*registerv1alpha1.ManagedClusterAcceptance) {}, apierrors.IsNotFound},
		"another UID":     {"c1", func(a *registerv1alpha1.ManagedClusterAcceptance) { a.UID = "another" }, apierrors.IsConflict},
		"an old version":  {"c1", func(a *registerv1alpha1.ManagedClusterAcceptance) { a.ResourceVersion = "1" }, apierrors.IsConflict},
		"a long reason":   {"c1", because(strings.Repeat("x", 1025)), apierrors.IsInvalid},
	} {
		if _, err := accepts.Accept(t.Context(), test.name, decision(test.name, true, test.change), metav1.UpdateOptions{}); !test.refused(err) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if h.get(t, "c1").Spec.HubAcceptsClient {
		t.Fatal("accepted")
	}
	if _, err := accepts.Accept(t.Context(), "c1", decision("c1", true, func(a *registerv1alpha1.ManagedClusterAcceptance) {
		a.UID, a.ResourceVersion = mc.UID, h.get(t, "c1").ResourceVersion
	}), metav1.UpdateOptions{}); err != nil {
		t.Errorf("as it was read: %v", err)
	}

	// Whoever may not, may not in any way.
	h.grant("editor", "update cluster:managedclusters", "patch cluster:managedclusters", "create cluster:managedclusters", "create cluster:managedclustersets/join")
	editor := h.as(t, "editor")
	h.create(t, newCluster("c2"))
	if _, err := editor.RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "c2", decision("c2", true), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("put: %v", err)
	}
	clusters := editor.ClusterV1().ManagedClusters()
	for name, patch := range map[string]string{"c2": accepting, "c1": denying} {
		if _, err := clusters.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("patch of %s: %v", name, err)
		}
	}
	accepted := newCluster("c3")
	accepted.Spec.HubAcceptsClient = true
	if _, err := clusters.Create(t.Context(), accepted, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create: %v", err)
	}
	if _, err := clusters.Patch(t.Context(), "c3", types.ApplyYAMLPatchType,
		[]byte(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"c3"},"spec":{"hubAcceptsClient":true}}`),
		metav1.PatchOptions{FieldManager: "test"}); !apierrors.IsForbidden(err) {
		t.Errorf("apply: %v", err)
	}
	// With OCM's permission the same writes decide.
	h.grant("editor", "update register:managedclusters/accept c2", "update register:managedclusters/accept c3")
	if _, err := clusters.Patch(t.Context(), "c2", types.MergePatchType, []byte(accepting), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clusters.Create(t.Context(), accepted, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"c2", "c3"} {
		if mc := h.get(t, name); !held(mc) || mc.Status.Acceptance == nil || mc.Status.Acceptance.DecidedBy != "editor" {
			t.Errorf("%s: %+v", name, mc)
		}
	}
}

func TestNotAcceptable(t *testing.T) {
	t.Run("without a claim where one is needed", func(t *testing.T) {
		h := startHub(t, needsClaim{})
		h.create(t, newCluster("c1"))
		clusters := h.admin(t).ClusterV1().ManagedClusters()
		accepted := newCluster("c2")
		accepted.Spec.HubAcceptsClient = true
		_, created := clusters.Create(t.Context(), accepted, metav1.CreateOptions{})
		_, patched := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(accepting), metav1.PatchOptions{})
		_, put := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{})
		for _, err := range []error{created, patched, put} {
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.hubAcceptsClient") || !strings.Contains(err.Error(), "no ARN") {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("while it is deleted", func(t *testing.T) {
		h := startHub(t, csr.Driver{})
		h.create(t, newCluster("c1"))
		h.put(t, decision("c1", true))
		h.put(t, decision("c1", false))
		if err := h.admin(t).ClusterV1().ManagedClusters().Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if mc := h.get(t, "c1"); mc.DeletionTimestamp == nil {
			t.Fatal("an accepted cluster is not held until it is cleaned up")
		}
		_, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("by a name that the hub needs", func(t *testing.T) {
		h := startHub(t)
		_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("work"), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("got %v", err)
		}
	})
}

// TestLeave checks that a cluster can give up its place, and that this is all it can decide.
func TestLeave(t *testing.T) {
	h := startHub(t)
	for _, name := range []string{"c1", "c2"} {
		h.create(t, newCluster(name))
		h.put(t, decision(name, true))
	}
	own := h.agent(t, "c1").ClusterV1().ManagedClusters()
	h.grant("system:open-cluster-management:c1:agent1", "patch cluster:managedclusters c2")
	if _, err := own.Patch(t.Context(), "c2", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another cluster: %v", err)
	}
	if _, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if a := h.get(t, "c1").Status.Acceptance; a == nil || !a.Left || a.Accepted || a.DecidedBy != "system:open-cluster-management:c1:agent1" {
		t.Errorf("got %+v", a)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked %v", got)
	}
	if _, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(accepting), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("comes back by itself: %v", err)
	}
}

// TestHubsOwnWord checks what of a ManagedCluster no agent writes.
func TestHubsOwnWord(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	own := h.agent(t, "c1").ClusterV1().ManagedClusters()
	forge := func() *clusterv1.ManagedCluster {
		t.Helper()
		mc := h.get(t, "c1")
		mc.Status.Acceptance = &clusterv1.Acceptance{Accepted: true, DecidedBy: "nobody"}
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue, Reason: "Forged"})
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue, Reason: "Joined"})
		out, err := own.UpdateStatus(t.Context(), mc, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	mc := forge()
	if mc.Status.Acceptance != nil || hubAccepted(mc) != nil || !meta.IsStatusConditionTrue(mc.Status.Conditions, clusterv1.ManagedClusterConditionJoined) {
		t.Errorf("got %+v", mc.Status)
	}

	h.put(t, decision("c1", true))
	server := h.as(t, user.APIServerUser, user.SystemPrivilegedGroup).ClusterV1().ManagedClusters()
	mc = h.get(t, "c1")
	meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonHubClusterAdminAccepted})
	if _, err := server.UpdateStatus(t.Context(), mc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	mc = forge()
	if got := hubAccepted(mc); got == nil || got.Reason != clusterv1.ReasonHubClusterAdminAccepted || mc.Status.Acceptance.DecidedBy != "admin" {
		t.Errorf("got %+v, %+v", got, mc.Status.Acceptance)
	}
	// Neither by leaving it out.
	mc.Status.Conditions = nil
	if mc, err := own.UpdateStatus(t.Context(), mc, metav1.UpdateOptions{}); err != nil || hubAccepted(mc) == nil || len(mc.Status.Conditions) != 1 {
		t.Errorf("got %+v %v", mc.Status.Conditions, err)
	}
	patched, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"status":{"acceptance":null,"conditions":[]}}`), metav1.PatchOptions{}, "status")
	if err != nil || hubAccepted(patched) == nil || patched.Status.Acceptance == nil {
		t.Errorf("got %+v %v", patched, err)
	}

	// Nor who it was that created it, or what holds it.
	patch := fmt.Sprintf(`{"metadata":{"finalizers":null,"annotations":{%q:"somebody"}}}`, registration.RequestedByAnnotation)
	patched, err = own.Patch(t.Context(), "c1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil || !held(patched) || patched.Annotations[registration.RequestedByAnnotation] != "bootstrap" {
		t.Errorf("got %+v %v", patched, err)
	}
}

func TestDeleted(t *testing.T) {
	h := startHub(t)
	clusters := h.admin(t).ClusterV1().ManagedClusters()
	h.create(t, newCluster("c1"))
	h.put(t, decision("c1", true))
	if err := clusters.Delete(t.Context(), "c1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if got := h.takeRevoked(); len(got) > 0 {
		t.Errorf("a dry-run has revoked %v", got)
	}
	if err := clusters.Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.takeRevoked(); len(got) > 0 {
		t.Errorf("revoked %v in the request that deletes, want none: the agent removes what the hub delivered first", got)
	}
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked %v in the request that denies a deleted cluster", got)
	}
	if _, err := h.Records.Get(t.Context(), "c1"); err != nil {
		t.Errorf("the registration goes last: %v", err)
	}

	// Of a cluster that never was accepted nothing is left at once, so that another one may have its identity.
	for range 3 {
		mc := h.create(t, newCluster("c2", registration.ARNAnnotation, bootARN))
		if record, err := h.Records.Get(t.Context(), "c2"); err != nil || record.Spec.ManagedClusterUID != mc.UID || record.Spec.IRSA == nil {
			t.Errorf("got %+v %v", record, err)
		}
		h.remove(t, "c2")
		if _, err := h.Records.Get(t.Context(), "c2"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}
}

// TestFormerCluster checks that a name is taken until the cleanup for its former owner is done.
func TestFormerCluster(t *testing.T) {
	h := startHub(t)
	former := record("c1", "former")
	former.Status.IRSA.Provisioned = true
	if _, err := h.Records.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	if _, err := clusters.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("got %v", err)
	}
	if _, err := h.Records.Update(t.Context(), "c1", func(r *registerv1alpha1.ManagedClusterRegistration) error {
		r.Status.IRSA.Provisioned = false
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mc, err := clusters.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if record, err := h.Records.Get(t.Context(), "c1"); err != nil || record.Spec.ManagedClusterUID != mc.UID {
		t.Errorf("got %+v %v", record, err)
	}
	// To create what exists changes nothing of it.
	if _, err := clusters.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
	if record, err := h.Records.Get(t.Context(), "c1"); err != nil || record.Spec.ManagedClusterUID != mc.UID {
		t.Errorf("got %+v %v", record, err)
	}
}

// TestFinalizerBeforeAcceptance checks that a ManagedCluster has its finalizer from the start, as on
// hubs that run OCM, and that it tells nothing about acceptance: who was accepted once has access to
// revoke and a namespace to remove.
func TestFinalizerBeforeAcceptance(t *testing.T) {
	h := startHub(t)
	mc := newCluster("c1")
	mc.Finalizers = []string{"example.com/mine"}
	mc.Status.Acceptance = &clusterv1.Acceptance{EverAccepted: true}
	h.create(t, mc)
	both := []string{"example.com/mine", clusterv1.ManagedClusterFinalizer}
	if got := h.get(t, "c1"); !slices.Equal(got.Finalizers, both) || registration.OnceAccepted(got) {
		t.Errorf("created with %v and %+v", got.Finalizers, got.Status.Acceptance)
	}
	clusters := h.admin(t).ClusterV1().ManagedClusters()
	// A client that replaces the object with the content of a file does not intend to remove it.
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"status":{"acceptance":{"accepted":true,"everAccepted":true}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if got := h.get(t, "c1"); !held(got) || registration.OnceAccepted(got) {
		t.Errorf("changed to %v and %+v", got.Finalizers, got.Status.Acceptance)
	}
	h.put(t, decision("c1", true))
	h.put(t, decision("c1", false))
	if got := h.get(t, "c1"); !held(got) || !registration.OnceAccepted(got) {
		t.Errorf("denied with %v and %+v", got.Finalizers, got.Status.Acceptance)
	}
}
