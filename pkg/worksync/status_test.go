package worksync

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

// observed returns the observation of a ClusterPermission whose work the agent
// reports with the given status of each manifest's Applied condition.
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
		for i, d := range deliveredObjects(work) {
			manifest := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{
				Ordinal: int32(i), Group: rbacv1.GroupName, Kind: d.kind, Name: d.name, Namespace: d.namespace,
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
		t.Errorf("condition %s is %s %s, want %s %s (%s)", conditionType, got.Status, got.Reason, want, reason, got.Message)
	}
	if got.ObservedGeneration != 3 {
		t.Errorf("condition %s has observed generation %d, want 3", conditionType, got.ObservedGeneration)
	}
	if got.LastTransitionTime.IsZero() {
		t.Errorf("condition %s has no time of transition", conditionType)
	}
}

func TestStatusFollowsTheWork(t *testing.T) {
	cp := permission(nil)

	status := judge(cp, observed(t, cp))
	wantCondition(t, status, "RBACManifestWorkCreated", metav1.ConditionTrue, "ManifestWorkCreated")
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionFalse, "ApplyRBACManifestWorkNotComplete")
	wantCondition(t, status, "FullyDelivered", metav1.ConditionTrue, "EverythingDelivered")

	cp.Status = status
	status = judge(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue))
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionTrue, "AppliedManifestWorkComplete")
	if message := meta.FindStatusCondition(status.Conditions, "AppliedRBACManifestWork").Message; !strings.Contains(message, "kubectl -n cluster1 get manifestwork cp-12345 -o yaml") {
		t.Errorf("message does not say how to look at the work: %q", message)
	}
	if got := status.ResourceStatus.ClusterRoles; len(got) != 1 || got[0].Name != "cp" || got[0].Conditions[0].Reason != "AppliedManifestComplete" {
		t.Errorf("cluster roles: %+v", got)
	}
	if got := status.ResourceStatus.ClusterRoleBindings; len(got) != 1 || got[0].Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("cluster role bindings: %+v", got)
	}
}

// A report on an older generation of the work says nothing about the present one.
func TestReportOnOlderGenerationDoesNotCount(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue)
	seen.work.Generation = 7
	wantCondition(t, judge(cp, seen), "AppliedRBACManifestWork", metav1.ConditionFalse, "ApplyRBACManifestWorkNotComplete")
}

// "Build errors flap True/False on each ManifestWork status change": the same
// observation must give the same status, with the same times.
func TestStatusDoesNotFlap(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp, metav1.ConditionTrue, metav1.ConditionFalse)
	cp.Status = judge(cp, seen)
	for i := range cp.Status.Conditions {
		cp.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	}
	if again := judge(cp, seen); !equality.Semantic.DeepEqual(again, cp.Status) {
		t.Errorf("a second look changes the status:\n%+v\n%+v", cp.Status, again)
	}
}

// "One manifest lacking Applied makes the whole status write invalid".
func TestManifestWithoutAppliedCondition(t *testing.T) {
	cp := permission(nil)
	status := judge(cp, observed(t, cp, metav1.ConditionTrue, ""))
	got := status.ResourceStatus.ClusterRoleBindings[0].Conditions[0]
	if got.Status != metav1.ConditionUnknown || got.Reason != "FailedGetManifestCondition" || got.LastTransitionTime.IsZero() {
		t.Errorf("condition of an object that was not reported: %+v", got)
	}
}

// "Validation=False never clears".
func TestValidationRecovers(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp)
	seen.clusterExists = false
	cp.Status = judge(cp, seen)
	wantCondition(t, cp.Status, "Validation", metav1.ConditionFalse, "FailedValidationNotInManagedClusterNamespace")
	seen.clusterExists = true
	wantCondition(t, judge(cp, seen), "Validation", metav1.ConditionTrue, "Valid")
}

// "ManifestWork rejected: error logged, retries; ClusterPermission status untouched".
func TestRejectedWorkIsReported(t *testing.T) {
	cp := permission(nil)
	seen := observed(t, cp)
	seen.work, seen.err = nil, errors.New("manifestworks is forbidden by policy")
	status := judge(cp, seen)
	wantCondition(t, status, "RBACManifestWorkCreated", metav1.ConditionFalse, "ManifestWorkNotCreated")
	if message := meta.FindStatusCondition(status.Conditions, "RBACManifestWorkCreated").Message; !strings.Contains(message, "forbidden by policy") {
		t.Errorf("message does not say why: %q", message)
	}
}

func TestUnrenderableObjectSaysWhy(t *testing.T) {
	cp := permission(nil)
	seen := observation{clusterExists: true, err: &unrenderableError{field.ErrorList{field.Required(field.NewPath("spec", "roles").Index(0).Child("namespace"), "")}}}
	status := judge(cp, seen)
	wantCondition(t, status, "AppliedRBACManifestWork", metav1.ConditionFalse, "FailedBuildManifestWork")
	if message := meta.FindStatusCondition(status.Conditions, "AppliedRBACManifestWork").Message; !strings.Contains(message, "spec.roles[0].namespace") {
		t.Errorf("message does not name the field: %q", message)
	}
}

// "validate conditions linger" after validate is turned off.
func TestValidateReportsMissingRolesAndEnds(t *testing.T) {
	cp := permission(func(cp *rbacv1alpha1.ClusterPermission) {
		cp.Spec.Validate = ptr.To(true)
		cp.Spec.RoleBindings = &[]rbacv1alpha1.RoleBinding{{
			Namespace: "apps", Name: "edit-apps",
			RoleRef: rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "Role", Name: new("deployer")},
			Subject: &rbacv1.Subject{Kind: "User", Name: "ann"},
		}}
	})
	cp.Status = judge(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse))
	wantCondition(t, cp.Status, "ValidateRolesExist", metav1.ConditionFalse, "RolesNotFound")
	if message := meta.FindStatusCondition(cp.Status.Conditions, "ValidateRolesExist").Message; !strings.Contains(message, "apps/deployer") {
		t.Errorf("message does not name the role: %q", message)
	}
	wantCondition(t, cp.Status, "ValidateClusterRolesExist", metav1.ConditionTrue, "AllClusterRolesFound")
	wantCondition(t, cp.Status, "AppliedRBACManifestWork", metav1.ConditionTrue, "AppliedManifestWorkComplete")

	// "ReadOnly stubs report Applied True though absent": they are no delivered objects.
	if roles := cp.Status.ResourceStatus.Roles; len(roles) != 0 {
		t.Errorf("a role that is only looked at is listed as delivered: %+v", roles)
	}

	cp.Status = judge(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue))
	wantCondition(t, cp.Status, "ValidateRolesExist", metav1.ConditionTrue, "AllRolesFound")

	cp.Spec.Validate = nil
	status := judge(cp, observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue))
	if condition := meta.FindStatusCondition(status.Conditions, "ValidateRolesExist"); condition != nil {
		t.Errorf("condition lingers: %+v", condition)
	}
}

// "Spec comparison never equal: PUT every reconcile".
func TestStoredWorkIsComparedByMeaning(t *testing.T) {
	cp := permission(nil)
	rendered := observed(t, cp).work
	stored := rendered.DeepCopy()
	stored.Spec.Workload.Manifests[0].RawExtension = runtime.RawExtension{Raw: []byte(`{"rules":[{"verbs":["get"],"resources":["pods"],"apiGroups":[""]}],
		"metadata":{"name":"cp"},"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1"}`)}
	if !upToDate(stored, rendered) {
		t.Error("the order of keys counts as a difference")
	}
	stored.Spec.Workload.Manifests[0].Raw = []byte(strings.Replace(string(stored.Spec.Workload.Manifests[0].Raw), "pods", "secrets", 1))
	if upToDate(stored, rendered) {
		t.Error("another rule does not count as a difference")
	}
	edited := rendered.DeepCopy()
	edited.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	if upToDate(edited, rendered) {
		t.Error("a delete option that someone added does not count as a difference")
	}
}

func TestExpiry(t *testing.T) {
	finished := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	work := &workv1.ManifestWork{
		Spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{TTLSecondsAfterFinished: ptr.To[int64](60)}},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
			Type: workv1.WorkComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(finished),
		}}},
	}
	if due, ok := expiry(work); !ok || !due.Equal(finished.Add(time.Minute)) {
		t.Errorf("due %s (%t), want a minute after it finished", due, ok)
	}
	work.Labels = map[string]string{workv1.ManifestWorkReplicaSetLabel: "ns.set"}
	if _, ok := expiry(work); ok {
		t.Error("a work of a ManifestWorkReplicaSet expires")
	}
	work.Labels = nil
	work.Status.Conditions[0].Status = metav1.ConditionFalse
	if _, ok := expiry(work); ok {
		t.Error("a work that has not finished expires")
	}
	work.Status.Conditions[0].Status = metav1.ConditionTrue
	work.Spec.DeleteOption.TTLSecondsAfterFinished = nil
	if _, ok := expiry(work); ok {
		t.Error("a work without a time to live expires")
	}
}
