package managedclusterregistration_test

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

// remove deletes a ManagedCluster that was never accepted, and removes its finalizer, as the controller does.
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
		t.Fatalf("ManagedCluster before a decision = %+v, want no acceptance", mc)
	}

	accepts := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations()
	dry, err := accepts.Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || !dry.Spec.Accepted || len(dry.Status.ApprovedRequests) > 0 {
		t.Errorf("Accept() with dry run = %+v, %v, want accepted without approved requests", dry, err)
	}
	if mc := h.get(t, "c1"); mc.Spec.HubAcceptsClient || mc.Status.Acceptance != nil {
		t.Fatal("ManagedCluster after Accept() with dry run = accepted, want no change")
	}

	out := h.put(t, decision("c1", true, because("new"), func(a *registerv1alpha1.ManagedClusterAcceptance) { a.Spec.Requesters = []string{"somebody"} }))
	mc := h.get(t, "c1")
	if !out.Spec.Accepted || out.UID != mc.UID || out.ResourceVersion != mc.ResourceVersion || out.Status.DecidedBy != "admin" ||
		out.Status.DecidedAt == nil || out.Status.Driver != registerv1alpha1.DriverCSR || !slices.Equal(out.Status.ApprovedRequests, []string{"c1-request"}) {
		t.Errorf("Accept() = %+v, want the driver csr and the approved request", out)
	}
	a := mc.Status.Acceptance
	if !mc.Spec.HubAcceptsClient || !held(mc) || mc.Generation != 2 || a == nil || !a.Accepted || !a.EverAccepted || a.DecidedBy != "admin" || a.Reason != "new" ||
		!slices.Equal(a.Requesters, []string{"somebody"}) || a.DecidedAt.IsZero() {
		t.Errorf("ManagedCluster after Accept() = %+v with %+v, want accepted with its requesters", mc, a)
	}
	out = h.put(t, decision("c1", false, because("retired")))
	mc = h.get(t, "c1")
	condition := hubAccepted(mc)
	if out.Spec.Accepted || mc.Spec.HubAcceptsClient || mc.Status.Acceptance.Accepted || !mc.Status.Acceptance.EverAccepted || mc.Status.Acceptance.Left || !held(mc) ||
		condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != clusterv1.ReasonHubClusterAdminDenied ||
		!strings.Contains(condition.Message, "admin") || !strings.Contains(condition.Message, "retired") || condition.ObservedGeneration != mc.Generation {
		t.Errorf("ManagedCluster after a denial = %+v with %+v, want a condition with user, reason and generation", mc, condition)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked clusters after a denial = %v, want c1", got)
	}
}

// TestAcceptAgain checks that a repeated acceptance of a cluster is a new decision.
func TestAcceptAgain(t *testing.T) {
	h := startHub(t)
	h.create(t, newCluster("c1"))
	h.put(t, decision("c1", true))
	before := h.get(t, "c1")
	h.put(t, decision("c1", true, func(a *registerv1alpha1.ManagedClusterAcceptance) { a.Spec.Requesters = []string{"other"} }))
	after := h.get(t, "c1")
	if !slices.Equal(after.Status.Acceptance.Requesters, []string{"other"}) || after.Status.Acceptance.DecidedAt.Before(&before.Status.Acceptance.DecidedAt) || after.Generation != before.Generation {
		t.Errorf("acceptance before = %+v, after = %+v, want a new decision", before.Status.Acceptance, after.Status.Acceptance)
	}
	// A change of other fields is not a decision.
	if _, err := h.admin(t).ClusterV1().ManagedClusters().Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":75}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.get(t, "c1").Status.Acceptance; got.DecidedAt != after.Status.Acceptance.DecidedAt || !slices.Equal(got.Requesters, []string{"other"}) {
		t.Errorf("acceptance = %+v, want no change", got)
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
			t.Errorf("Accept() of %s = %v, want a refusal", what, err)
		}
	}
	if h.get(t, "c1").Spec.HubAcceptsClient {
		t.Fatal("ManagedCluster after refused Accept() = accepted, want no change")
	}
	if _, err := accepts.Accept(t.Context(), "c1", decision("c1", true, func(a *registerv1alpha1.ManagedClusterAcceptance) {
		a.UID, a.ResourceVersion = mc.UID, h.get(t, "c1").ResourceVersion
	}), metav1.UpdateOptions{}); err != nil {
		t.Errorf("Accept() with the UID and resourceVersion that were read = %v, want no error", err)
	}

	// A caller without permission cannot decide by any kind of write.
	h.grant("editor", "update cluster:managedclusters", "patch cluster:managedclusters", "create cluster:managedclusters", "create cluster:managedclustersets/join")
	editor := h.as(t, "editor")
	h.create(t, newCluster("c2"))
	if _, err := editor.RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "c2", decision("c2", true), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Accept() without permission = %v, want 403", err)
	}
	clusters := editor.ClusterV1().ManagedClusters()
	for name, patch := range map[string]string{"c2": accepting, "c1": denying} {
		if _, err := clusters.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("Patch(%s) without permission = %v, want 403", name, err)
		}
	}
	accepted := newCluster("c3")
	accepted.Spec.HubAcceptsClient = true
	if _, err := clusters.Create(t.Context(), accepted, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Create() of an accepted cluster without permission = %v, want 403", err)
	}
	if _, err := clusters.Patch(t.Context(), "c3", types.ApplyYAMLPatchType,
		[]byte(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"c3"},"spec":{"hubAcceptsClient":true}}`),
		metav1.PatchOptions{FieldManager: "test"}); !apierrors.IsForbidden(err) {
		t.Errorf("apply without permission = %v, want 403", err)
	}
	// With the permission of OCM, the same writes are decisions.
	h.grant("editor", "update register:managedclusters/accept c2", "update register:managedclusters/accept c3")
	if _, err := clusters.Patch(t.Context(), "c2", types.MergePatchType, []byte(accepting), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clusters.Create(t.Context(), accepted, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"c2", "c3"} {
		if mc := h.get(t, name); !held(mc) || mc.Status.Acceptance == nil || mc.Status.Acceptance.DecidedBy != "editor" {
			t.Errorf("ManagedCluster %s = %+v, want accepted by editor", name, mc)
		}
	}
}

func TestNotAcceptable(t *testing.T) {
	t.Run("without a required claim", func(t *testing.T) {
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
				t.Errorf("acceptance of a cluster without ARN = %v, want an error of spec.hubAcceptsClient", err)
			}
		}
	})
	t.Run("while it is being deleted", func(t *testing.T) {
		h := startHub(t, csr.Driver{})
		h.create(t, newCluster("c1"))
		h.put(t, decision("c1", true))
		h.put(t, decision("c1", false))
		if err := h.admin(t).ClusterV1().ManagedClusters().Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if mc := h.get(t, "c1"); mc.DeletionTimestamp == nil {
			t.Fatal("deleted cluster has no deletionTimestamp, want one until the cleanup")
		}
		_, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "c1", decision("c1", true), metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			t.Errorf("write of a deleted cluster = %v, want 409", err)
		}
	})
	t.Run("with a reserved name", func(t *testing.T) {
		h := startHub(t)
		_, err := h.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), newCluster("work"), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("acceptance of a cluster with a reserved name = %v, want an error of metadata.name", err)
		}
	})
}

// TestLeave checks that a cluster can leave the hub, and cannot make any other decision.
func TestLeave(t *testing.T) {
	h := startHub(t)
	for _, name := range []string{"c1", "c2"} {
		h.create(t, newCluster(name))
		h.put(t, decision(name, true))
	}
	own := h.agent(t, "c1").ClusterV1().ManagedClusters()
	h.grant("system:open-cluster-management:c1:agent1", "patch cluster:managedclusters c2")
	if _, err := own.Patch(t.Context(), "c2", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("denial of another cluster = %v, want 403", err)
	}
	if _, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if a := h.get(t, "c1").Status.Acceptance; a == nil || !a.Left || a.Accepted || a.DecidedBy != "system:open-cluster-management:c1:agent1" {
		t.Errorf("acceptance = %+v, want left by the agent", a)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked clusters = %v, want c1", got)
	}
	if _, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(accepting), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("acceptance by the agent itself = %v, want 403", err)
	}
}

// TestServerFields checks the fields of a ManagedCluster that agents cannot write.
func TestServerFields(t *testing.T) {
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
		t.Errorf("status = %+v, want only the condition Joined", mc.Status)
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
		t.Errorf("condition = %+v, acceptance = %+v, want accepted by admin", got, mc.Status.Acceptance)
	}
	// An update that omits the condition does not remove it.
	mc.Status.Conditions = nil
	if mc, err := own.UpdateStatus(t.Context(), mc, metav1.UpdateOptions{}); err != nil || hubAccepted(mc) == nil || len(mc.Status.Conditions) != 1 {
		t.Errorf("conditions after an update of the agent = %+v, %v, want only the condition of the hub", mc.Status.Conditions, err)
	}
	patched, err := own.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"status":{"acceptance":null,"conditions":[]}}`), metav1.PatchOptions{}, "status")
	if err != nil || hubAccepted(patched) == nil || patched.Status.Acceptance == nil {
		t.Errorf("ManagedCluster after a patch of the agent = %+v, %v, want the acceptance", patched, err)
	}

	// The agent cannot change the annotation of the creator or the finalizer.
	patch := fmt.Sprintf(`{"metadata":{"finalizers":null,"annotations":{%q:"somebody"}}}`, registration.RequestedByAnnotation)
	patched, err = own.Patch(t.Context(), "c1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil || !held(patched) || patched.Annotations[registration.RequestedByAnnotation] != "bootstrap" {
		t.Errorf("ManagedCluster after a patch of the agent = %+v, %v, want the finalizer and the requester", patched, err)
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
		t.Errorf("revoked clusters after a dry run = %v, want none", got)
	}
	if err := clusters.Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.takeRevoked(); len(got) > 0 {
		t.Errorf("revoked clusters after the deletion = %v, want none: the agent removes the delivered objects first", got)
	}
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(denying), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.takeRevoked(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("revoked clusters after the denial of a deleted cluster = %v, want c1", got)
	}
	if _, err := h.Records.Get(t.Context(), "c1"); err != nil {
		t.Errorf("Get() of the registration of a deleted cluster = %v, want no error", err)
	}

	// The records of a cluster that was never accepted are removed immediately, so that another cluster can
	// claim its identity.
	for range 3 {
		mc := h.create(t, newCluster("c2", registration.ARNAnnotation, bootARN))
		if record, err := h.Records.Get(t.Context(), "c2"); err != nil || record.Spec.ManagedClusterUID != mc.UID || record.Spec.IRSA == nil {
			t.Errorf("registration of c2 = %+v, %v, want its claim", record, err)
		}
		h.remove(t, "c2")
		if _, err := h.Records.Get(t.Context(), "c2"); !apierrors.IsNotFound(err) {
			t.Errorf("Get() of the registration of a deleted cluster = %v, want 404", err)
		}
	}
}

// TestPreviousCluster checks that a name is not available until the previous cluster is cleaned up.
func TestPreviousCluster(t *testing.T) {
	h := startHub(t)
	former := record("c1", "former")
	former.Status.IRSA.Provisioned = true
	if _, err := h.Records.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	clusters := h.bootstrap(t).ClusterV1().ManagedClusters()
	if _, err := clusters.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("Create() before the cleanup of the previous cluster = %v, want 409", err)
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
		t.Errorf("registration = %+v, %v, want the registration of the new cluster", record, err)
	}
	// The refused Create() changes nothing.
	if _, err := clusters.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create() of an existing cluster = %v, want AlreadyExists", err)
	}
	if record, err := h.Records.Get(t.Context(), "c1"); err != nil || record.Spec.ManagedClusterUID != mc.UID {
		t.Errorf("registration = %+v, %v, want the registration of the new cluster", record, err)
	}
}

// TestFinalizerBeforeAcceptance checks that a new ManagedCluster has the finalizer, as on hubs that run OCM,
// and that the finalizer is independent of a previous acceptance.
func TestFinalizerBeforeAcceptance(t *testing.T) {
	h := startHub(t)
	mc := newCluster("c1")
	mc.Finalizers = []string{"example.com/mine"}
	mc.Status.Acceptance = &clusterv1.Acceptance{EverAccepted: true}
	h.create(t, mc)
	both := []string{"example.com/mine", clusterv1.ManagedClusterFinalizer}
	if got := h.get(t, "c1"); !slices.Equal(got.Finalizers, both) || registration.EverAccepted(got) {
		t.Errorf("finalizers of a new cluster = %v with %+v, want %v without acceptance", got.Finalizers, got.Status.Acceptance, both)
	}
	clusters := h.admin(t).ClusterV1().ManagedClusters()
	// A client that replaces the object with the content of a file does not intend to remove the
	// finalizer.
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clusters.Patch(t.Context(), "c1", types.MergePatchType, []byte(`{"status":{"acceptance":{"accepted":true,"everAccepted":true}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if got := h.get(t, "c1"); !held(got) || registration.EverAccepted(got) {
		t.Errorf("finalizers after an update = %v with %+v, want the finalizer without acceptance", got.Finalizers, got.Status.Acceptance)
	}
	h.put(t, decision("c1", true))
	h.put(t, decision("c1", false))
	if got := h.get(t, "c1"); !held(got) || !registration.EverAccepted(got) {
		t.Errorf("finalizers after a denial = %v with %+v, want the finalizer and the previous acceptance", got.Finalizers, got.Status.Acceptance)
	}
}
