package permission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestOwnRolesAreReportedOnce checks the first part of defect 5. The ManifestWork contains each
// referenced role once as read-only, and never a role that the ClusterPermission itself delivers.
func TestOwnRolesAreReportedOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "own-roles"
	cp := framework.Permission(name)
	cp.Spec.Validate = new(true)
	cp.Spec.ClusterRoleBindings = &[]rbacv1alpha1.ClusterRoleBinding{
		{Name: name + "-by-name", Subject: framework.UserSubject("bob"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
		{Name: name + "-view", Subject: framework.UserSubject("bob"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		{Name: name + "-view-too", Subject: framework.UserSubject("eve"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
	}
	*cp.Spec.RoleBindings = append(*cp.Spec.RoleBindings,
		rbacv1alpha1.RoleBinding{Namespace: "kube-system", RoleRef: rbacv1alpha1.RoleRef{Kind: "ClusterRole"}, Subject: framework.UserSubject("bob")})
	framework.CreatePermission(t, f.OCM, cp)
	cp = f.Applied(t, name)

	work, seen := f.WorkOf(t, cp), map[framework.Object]int{}
	for _, value := range framework.Manifests(work) {
		manifest := value.(map[string]any)
		metadata := manifest["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		called, _ := metadata["name"].(string)
		o := framework.NewObject(manifest["kind"].(string), namespace, called)
		if seen[o]++; seen[o] > 1 || called == "" {
			t.Errorf("%s is in the ManifestWork %d times, want once", o, seen[o])
		}
	}
	want := []workv1.ResourceIdentifier{{Group: new(rbacv1.GroupName), Resource: "clusterroles", Name: "view"}}
	var lookedAt []workv1.ResourceIdentifier
	for _, config := range work.Spec.ManifestConfigs {
		lookedAt = append(lookedAt, config.ResourceIdentifier)
	}
	if !equality.Semantic.DeepEqual(lookedAt, want) {
		t.Errorf("read-only manifests = %v, want %v", lookedAt, want)
	}
	// The conditions include the roles that the ClusterPermission itself delivers.
	f.PermissionSays(t, framework.Cluster1, name, "ValidateClusterRolesExist", metav1.ConditionTrue)
	f.PermissionSays(t, framework.Cluster1, name, "ValidateRolesExist", metav1.ConditionTrue)

	// Defect 6: without validate, the server removes the conditions of the validation.
	f.update(t, name, func(cp *rbacv1alpha1.ClusterPermission) { cp.Spec.Validate = new(false) })
	framework.Eventually(t, "ClusterPermission "+name+" has no Validate conditions", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		for _, condition := range cp.Status.Conditions {
			if strings.HasPrefix(condition.Type, "Validate") {
				return fmt.Errorf("condition %s exists: %s", condition.Type, condition.Message)
			}
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})
}

// TestMissingRolesAreReported checks the second part of defect 5: a read-only role is reported as
// missing as long as it does not exist.
func TestMissingRolesAreReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, role = "missing-roles", "comes-later"
	cp := framework.Permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		Validate: new(true),
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
			Subject: framework.UserSubject("alice"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		},
		RoleBindings: &[]rbacv1alpha1.RoleBinding{{Namespace: "default", RoleRef: framework.RoleRefTo("Role", role), Subject: framework.UserSubject("alice")}},
	}
	framework.CreatePermission(t, f.OCM, cp)
	found := func(status metav1.ConditionStatus, texts ...string) {
		t.Helper()
		f.PermissionSays(t, framework.Cluster1, name, "ValidateClusterRolesExist", status, texts...)
		f.PermissionSays(t, framework.Cluster1, name, "ValidateRolesExist", status, texts...)
	}
	found(metav1.ConditionFalse, role)
	// A missing role does not prevent the delivery of the bindings.
	f.Present(t, framework.NewObject("ClusterRoleBinding", "", name), framework.NewObject("RoleBinding", "default", name))
	f.Applied(t, name)

	framework.CreateClusterRole(t, f.ManagedClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: framework.ReadPods})
	framework.CreateRole(t, f.ManagedClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: role}, Rules: framework.ReadPods})
	found(metav1.ConditionTrue)
	if rules := framework.Must(f.ManagedClient.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}))(t).Rules; len(rules) != len(framework.ReadPods) {
		t.Errorf("rules of the read-only role = %v, want them unchanged", rules)
	}
	if err := f.ManagedClient.RbacV1().ClusterRoles().Delete(t.Context(), role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.ManagedClient.RbacV1().Roles("default").Delete(t.Context(), role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	found(metav1.ConditionFalse, role)
}

// TestConditionsDoNotFlap checks defect 6: reports of the agent change neither the condition of a
// part that cannot be delivered, nor its transition time.
func TestConditionsDoNotFlap(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const reports = 40
	cluster := f.SilentCluster(t)
	cp := framework.Permission("no-flapping")
	cp.Namespace = cluster
	cp.Spec.ClusterRoleBinding.Subject = managedAccount("never-there")
	framework.CreatePermission(t, f.OCM, cp)
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse, "never-there")
	cp = framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(cluster).Get(t.Context(), cp.Name, metav1.GetOptions{}))(t)
	f.ReportWork(t, cp, func(work *workv1.ManifestWork) { framework.MarkApplied(work, "report 0") })
	cp = f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)

	watcher := framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(cluster).Watch(t.Context(), metav1.ListOptions{ResourceVersion: cp.ResourceVersion}))(t)
	defer watcher.Stop()
	before, last := statuses(cp), fmt.Sprintf("report %d", reports)
	watched := make(chan error, 1)
	go func() {
		for event := range watcher.ResultChan() {
			seen, ok := event.Object.(*rbacv1alpha1.ClusterPermission)
			if !ok {
				watched <- fmt.Errorf("object in the watch = %v, want a ClusterPermission", event.Object)
				return
			}
			if got := statuses(seen); !maps.Equal(got, before) {
				watched <- fmt.Errorf("conditions = %v, want %v", got, before)
				return
			}
			if framework.ConditionSays(seen, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue, last) == nil {
				watched <- nil
				return
			}
		}
		watched <- errors.New("watch ended, want an event with the last report")
	}()
	for i := range reports {
		f.ReportWork(t, cp, func(work *workv1.ManifestWork) { framework.MarkApplied(work, fmt.Sprintf("report %d", i+1)) })
	}
	select {
	case err := <-watched:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(await.Patience):
		t.Errorf("no event with the message %q, want one", last)
	}
}

// statuses returns the status, the reason and the transition time of each condition of a
// ClusterPermission.
func statuses(cp *rbacv1alpha1.ClusterPermission) map[string]string {
	out := map[string]string{}
	for _, condition := range cp.Status.Conditions {
		out[condition.Type] = fmt.Sprintf("%s for %s since %s", condition.Status, condition.Reason, condition.LastTransitionTime)
	}
	return out
}

// clearsCondition checks defect 6: the condition Validation is False only while the
// ManagedCluster does not exist. If the namespace still exists, the ManifestWork stays, and changes
// wait until the ManagedCluster exists again.
func (o *overlaid) clearsCondition(t *testing.T) {
	ctx, hub, ocm, f := t.Context(), o.cluster, o.OCM, o.fleet
	cp := framework.CreatePermission(t, ocm, framework.Permission("validation-clears"))
	workOf := func(ctx context.Context) (*workv1.ManifestWork, error) {
		works, err := framework.WorksOf(ctx, ocm, cp.Name)
		if err == nil && len(works) != 1 {
			err = fmt.Errorf("ManifestWorks = %d, want 1", len(works))
		}
		if err != nil {
			return nil, err
		}
		return &works[0], nil
	}
	framework.Eventually(t, "ClusterPermission "+cp.Name+" has a ManifestWork", func(ctx context.Context) error {
		_, err := workOf(ctx)
		return err
	})
	before := framework.Must(workOf(ctx))(t)
	f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionValidation, metav1.ConditionTrue)
	if err := ocm.ClusterV1().ManagedClusters().Delete(ctx, framework.Cluster1, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	permissions := ocm.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionValidation, metav1.ConditionFalse, framework.Cluster1)
	waiting := framework.Must(permissions.Create(ctx, framework.Permission("early"), metav1.CreateOptions{}))(t)
	f.PermissionSays(t, framework.Cluster1, waiting.Name, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse, "when cluster")
	if err := permissions.Delete(ctx, waiting.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := permissions.Get(ctx, cp.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.ClusterRole.Rules = framework.ReadPods
		_, err = permissions.Update(ctx, current, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// The condition is of the changed generation.
	f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionValidation, metav1.ConditionFalse, framework.Cluster1)
	if after := framework.Must(workOf(ctx))(t); after.UID != before.UID || after.Generation != before.Generation {
		t.Errorf("ManifestWork has UID %s and generation %d, want UID %s and generation %d", after.UID, after.Generation, before.UID, before.Generation)
	}
	if err := localhub.JoinAsOCM(ctx, hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ManifestWork contains the change", func(ctx context.Context) error {
		after, err := workOf(ctx)
		if err == nil && (after.UID != before.UID || after.Generation == before.Generation) {
			err = fmt.Errorf("ManifestWork has UID %s and generation %d, want UID %s and a generation after %d", after.UID, after.Generation, before.UID, before.Generation)
		}
		return err
	})
	f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionValidation, metav1.ConditionTrue)
}

// TestUnreportedObjectDoesNotHideOthers checks defect 7: if an agent reports no status for one
// object, the ClusterPermission still contains the status of the others.
func TestUnreportedObjectDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	cp := framework.Permission("unreported-object")
	cp.Namespace = cluster
	cp = framework.CreatePermission(t, f.OCM, cp)
	f.WorkOf(t, cp)
	f.ReportWork(t, cp, func(work *workv1.ManifestWork) {
		framework.MarkApplied(work, "all but one")
		for _, o := range framework.ObjectsOf(cp.Name) {
			condition := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "AppliedManifestComplete", LastTransitionTime: metav1.Now()}
			if o.Kind == "Role" {
				condition.Type = workv1.WorkAvailable
			}
			work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Group: rbacv1.GroupName, Version: "v1", Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
				Conditions:   []metav1.Condition{condition},
			})
		}
	})
	cp = f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	status := cp.Status.ResourceStatus
	if status == nil || len(status.Roles) != 1 || len(status.RoleBindings) != 1 || len(status.ClusterRoles) != 1 || len(status.ClusterRoleBindings) != 1 {
		t.Fatalf("resourceStatus = %+v, want one object of each kind", status)
	}
	for what, entry := range map[string]struct {
		conditions []metav1.Condition
		want       metav1.ConditionStatus
	}{
		"Role":               {status.Roles[0].Conditions, metav1.ConditionUnknown},
		"RoleBinding":        {status.RoleBindings[0].Conditions, metav1.ConditionTrue},
		"ClusterRole":        {status.ClusterRoles[0].Conditions, metav1.ConditionTrue},
		"ClusterRoleBinding": {status.ClusterRoleBindings[0].Conditions, metav1.ConditionTrue},
	} {
		condition := meta.FindStatusCondition(entry.conditions, rbacv1alpha1.ConditionResourceApplied)
		if condition == nil || condition.Status != entry.want || condition.LastTransitionTime.IsZero() {
			t.Errorf("condition of the %s = %+v, want %s", what, condition, entry.want)
		}
	}
}

// TestIrrelevantChangesWriteNothing checks defect 9: if a change of a watched object does not
// affect the delivery, the server writes nothing. TestNothingIsWrittenWhenNothingChanged covers
// restarts.
func TestIrrelevantChangesWriteNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, other = "irrelevant-changes", "irrelevant-changes-other"
	cluster := f.SilentCluster(t)
	quiet, moving := f.withAllInputs(t, cluster, name), f.withAllInputs(t, cluster, other)
	versions := func() string {
		return "ClusterPermission " + framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(cluster).Get(t.Context(), name, metav1.GetOptions{}))(t).ResourceVersion +
			", ManifestWork " + framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(quiet), metav1.GetOptions{}))(t).ResourceVersion
	}
	before := versions()

	f.ReportAccount(t, cluster, name, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		status.ExpirationTimestamp = new(metav1.Now())
	})
	labels := []byte(`{"metadata":{"labels":{"of-no":"consequence"}}}`)
	framework.Must(f.HubClient.RbacV1().ClusterRoles().Patch(t.Context(), name, types.MergePatchType, labels, metav1.PatchOptions{}))(t)
	framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, labels, metav1.PatchOptions{}))(t)
	framework.Must(f.OCM.RbacV1alpha1().ClusterNamespaces(cluster).Patch(t.Context(), name, types.MergePatchType, labels, metav1.PatchOptions{}))(t)
	f.reportNamespace(t, cluster, "not-selected", nil)

	// These later changes arrive through the same watches and affect another ClusterPermission.
	// Its delivery proves that the earlier changes were processed.
	f.ReportAccount(t, cluster, other, framework.PlacedIn("where-it-has-moved", other))
	framework.Must(f.HubClient.RbacV1().ClusterRoles().Patch(t.Context(), other, types.MergePatchType,
		[]byte(`{"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]}`), metav1.PatchOptions{}))(t)
	f.reportNamespace(t, cluster, "selected-later", map[string]string{"team": other})
	f.workHas(t, moving, "where-it-has-moved", "nodes", "selected-later")
	if after := versions(); after != before {
		t.Errorf("resourceVersions = %s, want %s", after, before)
	}
}

// withAllInputs creates a ClusterPermission with its inputs: an account, a role of the hub and a
// selected namespace, all with its name. It waits until the ClusterPermission is reported as
// applied.
func (f *fleet) withAllInputs(t *testing.T, cluster, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, name))
	f.ReportAccount(t, cluster, name, framework.PlacedIn("somewhere", name))
	f.reportNamespace(t, cluster, name, map[string]string{"team": name})
	framework.CreateClusterRole(t, f.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: framework.ReadPods})
	cp := framework.PermissionForAccount(cluster, name, name)
	(*cp.Spec.Roles)[0].Namespace, (*cp.Spec.Roles)[0].NamespaceSelector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
	cp.Spec.RoleRefs = &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: name}}
	cp = framework.CreatePermission(t, f.OCM, cp)
	f.PermissionSays(t, cluster, name, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionTrue)
	f.ReportWork(t, cp, func(work *workv1.ManifestWork) { framework.MarkApplied(work, "done") })
	return f.PermissionSays(t, cluster, name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
}

// TestNoNamespaceMatches checks defect 9: a condition reports a selector that matches no namespace,
// and the server creates no ManifestWork without manifests.
func TestNoNamespaceMatches(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	f.reportNamespace(t, cluster, "default", nil)
	cp := framework.PermissionForAccount(cluster, "no-namespace-matches", "anybody")
	cp.Spec.Roles = nil
	(*cp.Spec.RoleBindings)[0] = rbacv1alpha1.RoleBinding{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "none"}}, RoleRef: framework.RoleRefTo("ClusterRole", "view"), Subject: framework.UserSubject("alice"),
	}
	cp = framework.CreatePermission(t, f.OCM, cp)
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionNamespacesSelected, metav1.ConditionFalse, "spec.roleBindings[0].namespaceSelector: 0")
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse)
	if _, err := f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}); framework.IsGone(err) != nil {
		t.Errorf("get of the ManifestWork = %v, want NotFound", err)
	}
	f.reportNamespace(t, cluster, "first", map[string]string{"team": "none"})
	f.PermissionSays(t, cluster, cp.Name, rbacv1alpha1.ConditionNamespacesSelected, metav1.ConditionTrue, "spec.roleBindings[0].namespaceSelector: 1")
	f.WorkOf(t, cp)
}

// TestWorkThatIsBeingRemoved checks that a ManifestWork is reported as removed only after the agent
// has removed its objects.
func TestWorkThatIsBeingRemoved(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	const name = "being-removed"
	cp := framework.CreatePermission(t, f.OCM, onlyForAccount(cluster, name))
	reported := framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, name))
	_, agent := f.AgentOf(t, cluster)
	reported.Status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: framework.AccountsNamespace, Name: name}
	if _, err := agent.AuthenticationV1beta1().ManagedServiceAccounts(cluster).UpdateStatus(t.Context(), reported, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	works := agent.WorkV1().ManifestWorks(cluster)
	finalizers := func(list string) {
		t.Helper()
		framework.Eventually(t, "the agent has set its finalizers", func(ctx context.Context) error {
			_, err := works.Patch(ctx, render.WorkName(cp), types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
			return err
		})
	}
	finalizers(`["cluster.open-cluster-management.io/manifest-work-cleanup"]`)
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(cluster).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.PermissionSays(t, cluster, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "is being deleted")
	f.PermissionSays(t, cluster, name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, "is removing")
	finalizers(`null`)
	f.PermissionSays(t, cluster, name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, "No part of the spec can be delivered")
}

// onlyForAccount returns a ClusterPermission that delivers nothing if the account of its name does
// not exist.
func onlyForAccount(namespace, name string) *rbacv1alpha1.ClusterPermission {
	cp := framework.PermissionForAccount(namespace, name, name)
	cp.Spec.Roles = nil
	(*cp.Spec.RoleBindings)[0].RoleRef = framework.RoleRefTo("ClusterRole", "view")
	return cp
}
