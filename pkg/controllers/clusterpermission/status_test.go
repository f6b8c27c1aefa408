package clusterpermission

import (
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

func permission(change func(*rbacv1alpha1.ClusterPermission)) *rbacv1alpha1.ClusterPermission {
	out := &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Name: "cp", Namespace: "cluster1", UID: "12345678", Generation: 3},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole: &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
				Subject: &rbacv1.Subject{Kind: "User", Name: "ann"},
			},
		},
	}
	if change != nil {
		change(out)
	}
	return out
}

// observed returns the observation of a ClusterPermission whose manifests have the given status of the
// condition Applied.
func observed(t *testing.T, cp *rbacv1alpha1.ClusterPermission, applied ...metav1.ConditionStatus) observation {
	t.Helper()
	result, errs := render.Render(cp, render.Inputs{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	work := result.Work.DeepCopy()
	work.Generation = 2
	if applied != nil {
		overall := metav1.ConditionTrue
		for i, d := range permissions.Objects(work) {
			manifest := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{
				Ordinal: int32(i), Group: rbacv1.GroupName, Kind: d.Kind, Name: d.Name, Namespace: d.Namespace,
			}}
			if i < len(applied) && applied[i] != "" {
				manifest.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: applied[i], Message: "says the agent"}}
				if applied[i] == metav1.ConditionTrue {
					manifest.Conditions = append(manifest.Conditions, metav1.Condition{Type: workv1.WorkAvailable, Status: metav1.ConditionTrue})
				} else {
					overall = metav1.ConditionFalse
				}
			}
			work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, manifest)
		}
		work.Status.Conditions = []metav1.Condition{{
			Type: workv1.WorkApplied, Status: overall, Reason: workv1.ReasonAppliedManifestWorkComplete, ObservedGeneration: 2,
		}}
	}
	return observation{clusterExists: true, result: result, work: work}
}

func wantCondition(t *testing.T, status rbacv1alpha1.ClusterPermissionStatus, conditionType string, want metav1.ConditionStatus, reason string) {
	t.Helper()
	got := meta.FindStatusCondition(status.Conditions, conditionType)
	if got == nil {
		t.Fatalf("condition %s is missing", conditionType)
	}
	if got.Status != want || got.Reason != reason {
		t.Errorf("condition %s = %s %s, want %s %s (%s)", conditionType, got.Status, got.Reason, want, reason, got.Message)
	}
	if got.ObservedGeneration != 3 {
		t.Errorf("condition %s: observedGeneration = %d, want 3", conditionType, got.ObservedGeneration)
	}
	if got.LastTransitionTime.IsZero() {
		t.Errorf("condition %s: lastTransitionTime = 0, want a time", conditionType)
	}
}

func TestStatusFollowsTheManifestWork(t *testing.T) {
	cp := permission(nil)

	status := newStatus(cp, observed(t, cp))
	wantCondition(t, status, "RBACManifestWorkCreated", metav1.ConditionTrue, "ManifestWorkCreated")
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionFalse, "ApplyRBACManifestWorkNotComplete")
	wantCondition(t, status, "FullyDelivered", metav1.ConditionTrue, "EverythingDelivered")

	cp.Status = status
	status = newStatus(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue))
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionTrue, "AppliedManifestWorkComplete")
	if message := meta.FindStatusCondition(status.Conditions, "AppliedRBACManifestWork").Message; !strings.Contains(message, "kubectl -n cluster1 get manifestwork cp-12345 -o yaml") {
		t.Errorf("message = %q, want the command that shows the ManifestWork", message)
	}
	if got := status.ResourceStatus.ClusterRoles; len(got) != 1 || got[0].Name != "cp" || got[0].Conditions[0].Reason != "AppliedManifestComplete" {
		t.Errorf("status of the ClusterRoles = %+v, want cp with reason AppliedManifestComplete", got)
	}
	if got := status.ResourceStatus.ClusterRoleBindings; len(got) != 1 || got[0].Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("status of the ClusterRoleBindings = %+v, want one with status True", got)
	}
}

// TestStatusListsNoObjectsOfOthers checks that the status does not list an object that another writer has added to the
// ManifestWork: reviews of fleet access rely on it.
func TestStatusListsNoObjectsOfOthers(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue)
	seen.work.Spec.Workload.Manifests = append(seen.work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"cluster-admin"}}`),
	}})
	seen.work.Status.ResourceStatus.Manifests = append(seen.work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
		ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 2, Group: rbacv1.GroupName, Kind: "ClusterRoleBinding", Name: "cluster-admin"},
		Conditions:   []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue}},
	})
	for _, err := range []error{nil, errors.New("manifestworks is forbidden by policy")} {
		seen.err = err
		if got := newStatus(cp, seen).ResourceStatus.ClusterRoleBindings; len(got) != 1 || got[0].Name != "cp" {
			t.Errorf("status of the ClusterRoleBindings after error %v = %+v, want only cp", err, got)
		}
	}
}

// TestReportOnOlderGenerationDoesNotCount checks that a report on an older generation of the
// ManifestWork has no effect on the status.
func TestReportOnOlderGenerationDoesNotCount(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue)
	seen.work.Generation = 7
	wantCondition(t, newStatus(cp, seen), "AppliedRBACManifestWork", metav1.ConditionFalse, "ApplyRBACManifestWorkNotComplete")
}

// TestStatusDoesNotFlap checks that the same observation results in the same status, with the same
// times.
func TestStatusDoesNotFlap(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp, metav1.ConditionTrue, metav1.ConditionFalse)
	cp.Status = newStatus(cp, seen)
	for i := range cp.Status.Conditions {
		cp.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	}
	if again := newStatus(cp, seen); !equality.Semantic.DeepEqual(again, cp.Status) {
		t.Errorf("newStatus() of the same observation = %+v, want it unchanged: %+v", again, cp.Status)
	}
}

// TestManifestWithoutAppliedCondition checks that a manifest without the condition Applied does not
// make the status invalid.
func TestManifestWithoutAppliedCondition(t *testing.T) {
	cp := permission(nil)
	status := newStatus(cp, observed(t, cp, metav1.ConditionTrue, ""))
	got := status.ResourceStatus.ClusterRoleBindings[0].Conditions[0]
	if got.Status != metav1.ConditionUnknown || got.Reason != "FailedGetManifestCondition" || got.LastTransitionTime.IsZero() {
		t.Errorf("condition of an object that was not reported = %+v, want Unknown", got)
	}
}

// TestValidationRecovers checks that the condition Validation becomes True when the ManagedCluster
// exists again.
func TestValidationRecovers(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp)
	seen.clusterExists = false
	cp.Status = newStatus(cp, seen)
	wantCondition(t, cp.Status, "Validation", metav1.ConditionFalse, "FailedValidationNotInManagedClusterNamespace")
	seen.clusterExists = true
	wantCondition(t, newStatus(cp, seen), "Validation", metav1.ConditionTrue, "Valid")
}

// TestWaitingForCluster checks the conditions of a ClusterPermission whose cluster has never joined.
func TestWaitingForCluster(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp)
	seen.clusterExists, seen.work = false, nil
	status := newStatus(cp, seen)
	wantCondition(t, status, "Validation", metav1.ConditionFalse, "FailedValidationNotInManagedClusterNamespace")
	for _, conditionType := range []string{"RBACManifestWorkCreated", "FullyDelivered"} {
		wantCondition(t, status, conditionType, metav1.ConditionFalse, "WaitingForManagedCluster")
	}
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionFalse, "ApplyRBACManifestWorkNotComplete")
}

// TestRejectedWorkIsReported checks that the status reports why the ManifestWork was rejected.
func TestRejectedWorkIsReported(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp)
	seen.work, seen.err = nil, errors.New("manifestworks is forbidden by policy")
	status := newStatus(cp, seen)
	wantCondition(t, status, "RBACManifestWorkCreated", metav1.ConditionFalse, "ManifestWorkNotCreated")
	if message := meta.FindStatusCondition(status.Conditions, "RBACManifestWorkCreated").Message; !strings.Contains(message, "forbidden by policy") {
		t.Errorf("message = %q, want the error", message)
	}
}

func TestRenderingErrorIsReported(t *testing.T) {
	cp := permission(nil)
	seen := observation{clusterExists: true, err: &permissions.UnrenderableError{Errors: field.ErrorList{field.Required(field.NewPath("spec", "roles").Index(0).Child("namespace"), "")}}}
	status := newStatus(cp, seen)
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionFalse, "FailedBuildManifestWork")
	if message := meta.FindStatusCondition(status.Conditions, "AppliedRBACManifestWork").Message; !strings.Contains(message, "spec.roles[0].namespace") {
		t.Errorf("message = %q, want the field", message)
	}
}

// TestValidateReportsMissingRolesAndEnds checks the conditions of validate: true, and that they are
// removed after validate is disabled.
func TestValidateReportsMissingRolesAndEnds(t *testing.T) {
	cp := permission(func(cp *rbacv1alpha1.ClusterPermission) {
		cp.Spec.Validate = ptr.To(true)
		cp.Spec.RoleBindings = &[]rbacv1alpha1.RoleBinding{{
			Namespace: "apps", Name: "edit-apps",
			RoleRef: rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "Role", Name: new("deployer")},
			Subject: &rbacv1.Subject{Kind: "User", Name: "ann"},
		}}
	})
	cp.Status = newStatus(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse))
	wantCondition(t, cp.Status, "ValidateRolesExist", metav1.ConditionFalse, "RolesNotFound")
	if message := meta.FindStatusCondition(cp.Status.Conditions, "ValidateRolesExist").Message; !strings.Contains(message, "apps/deployer") {
		t.Errorf("message = %q, want the role", message)
	}
	wantCondition(t, cp.Status, "ValidateClusterRolesExist", metav1.ConditionTrue, "AllClusterRolesFound")
	wantCondition(t, cp.Status, "AppliedRBACManifestWork", metav1.ConditionTrue, "AppliedManifestWorkComplete")

	// The status must not list a read-only role among the delivered objects.
	if roles := cp.Status.ResourceStatus.Roles; len(roles) != 0 {
		t.Errorf("delivered roles = %+v, want none: the role is read-only", roles)
	}

	cp.Status = newStatus(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue))
	wantCondition(t, cp.Status, "ValidateRolesExist", metav1.ConditionTrue, "AllRolesFound")

	cp.Spec.Validate = nil
	status := newStatus(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue))
	if condition := meta.FindStatusCondition(status.Conditions, "ValidateRolesExist"); condition != nil {
		t.Errorf("condition ValidateRolesExist = %+v, want none", condition)
	}
}
