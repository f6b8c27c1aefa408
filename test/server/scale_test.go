package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	scaleClusters   = 20
	scaleAccounts   = 5  // of each cluster
	scaleOfCluster  = 10 // permissions of each cluster, so each account has two
	scaleRequesters = 16
	// idleSeconds is the number of seconds in which the idle server must write nothing.
	idleSeconds = 15
)

// scaleRole is a ClusterRole on the hub that some of the ClusterPermissions deliver.
var scaleRole = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scale-viewer"}, Rules: framework.ReadPods}

func scaleCluster(i int) string { return fmt.Sprintf("scale-%03d", i) }

func scaleAccount(i int) string { return fmt.Sprintf("account-%d", i%scaleAccounts) }

// scalePermission returns the ClusterPermission of a cluster with index i. Each has a role, bindings
// and an account. Some select namespaces, and some deliver a ClusterRole of the hub.
func scalePermission(cluster string, i int) *rbacv1alpha1.ClusterPermission {
	cp := framework.PermissionForAccount(cluster, fmt.Sprintf("permission-%d", i), scaleAccount(i))
	cp.Spec.ClusterRole = &rbacv1alpha1.ClusterRole{Rules: framework.ReadAll}
	cp.Spec.ClusterRoleBinding = &rbacv1alpha1.ClusterRoleBinding{Subject: framework.UserSubject("alice")}
	if i%3 == 0 {
		apps := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "app"}}
		*cp.Spec.Roles = append(*cp.Spec.Roles, rbacv1alpha1.Role{NamespaceSelector: apps, Rules: framework.ReadPods})
		*cp.Spec.RoleBindings = append(*cp.Spec.RoleBindings, rbacv1alpha1.RoleBinding{
			NamespaceSelector: apps, RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: (*cp.Spec.RoleBindings)[0].Subject,
		})
	}
	if i%4 == 0 {
		cp.Spec.RoleRefs = &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: scaleRole.Name}}
	}
	return cp
}

// TestManyPermissions checks that the server writes nothing while nothing changes, even after a
// restart, and that a change updates only the ManifestWorks that depend on it.
func TestManyPermissions(t *testing.T) {
	t.Parallel()
	a := auditedFleet(t)
	a.clusters = framework.Environment(t, "SCALE_CLUSTERS", scaleClusters)
	framework.Must(a.HubClient.RbacV1().ClusterRoles().Create(t.Context(), scaleRole, metav1.CreateOptions{}))(t)
	each(t, a.clusters, func(ctx context.Context, i int) error { return a.fill(ctx, scaleCluster(i)) })
	a.quiet(t, a.permissions())
	each(t, a.clusters, func(ctx context.Context, i int) error { return framework.ReportWorks(ctx, a.direct, scaleCluster(i)) })
	made := a.quiet(t, a.permissions())
	a.allApplied(t)
	if made.renewals == 0 || len(made.others) < a.clusters {
		t.Fatalf("audit log of the hub: %d lease renewals and %d other writes of the server, want some renewals and at least %d writes", made.renewals, len(made.others), a.clusters)
	}

	// Each subtest starts when the server is quiet, so that all later writes belong to the subtest.
	t.Run("a moved account changes two ManifestWorks", a.movesAccount)
	t.Run("an idle server writes nothing", a.staysIdle)
	t.Run("a restart writes nothing", a.startsAgain)
}

// permissions returns the number of ClusterPermissions.
func (a *auditor) permissions() int { return a.clusters * scaleOfCluster }

// each calls do with the numbers from 0 to count-1, some of them concurrently.
func each(t *testing.T, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(scaleRequesters)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// fill joins a cluster, and creates the objects of its administrator and of its agent.
func (a *auditor) fill(ctx context.Context, cluster string) error {
	if err := localhub.JoinCluster(ctx, a.Hub, cluster); err != nil {
		return err
	}
	for name, tier := range map[string]string{"default": "", "app-a": "app", "app-b": "app"} {
		namespace := &rbacv1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: map[string]string{"tier": tier}}}
		if _, err := a.direct.RbacV1alpha1().ClusterNamespaces(cluster).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range scaleAccounts {
		if err := a.reportAccount(ctx, cluster, scaleAccount(i)); err != nil {
			return err
		}
	}
	for i := range scaleOfCluster {
		cp := scalePermission(cluster, i)
		if _, err := a.direct.RbacV1alpha1().ClusterPermissions(cluster).Create(ctx, cp, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// reportAccount creates an account, and reports it and its token like an agent.
func (a *auditor) reportAccount(ctx context.Context, cluster, name string) error {
	accounts := a.direct.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	created, err := accounts.Create(ctx, framework.NewAccount(cluster, name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	token := framework.NewSecret(name)
	token.Type = corev1.SecretTypeOpaque
	token.Labels = map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}
	token.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: created.Name, UID: created.UID,
	}}
	if token, err = a.HubClient.CoreV1().Secrets(cluster).Create(ctx, token, metav1.CreateOptions{}); err != nil {
		return err
	}
	now := metav1.Now()
	status := authenticationv1beta1.ManagedServiceAccountStatus{
		TokenSecretRef:      &authenticationv1beta1.TokenSecretReference{Name: name, LastRefreshTimestamp: now, ResourceVersion: token.ResourceVersion},
		ServiceAccountRef:   &authenticationv1beta1.ServiceAccountReference{Namespace: framework.AccountsNamespace, Name: name},
		ExpirationTimestamp: &metav1.Time{Time: now.Add(authenticationv1beta1.DefaultValidity)},
	}
	for condition, reason := range map[string]string{
		authenticationv1beta1.ConditionSecretCreated:            authenticationv1beta1.ReasonSecretCreated,
		authenticationv1beta1.ConditionTokenReported:            authenticationv1beta1.ReasonTokenReported,
		authenticationv1beta1.ConditionAllServiceAccountPresent: authenticationv1beta1.ReasonServiceAccountPresent,
	} {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: created.Generation, LastTransitionTime: now,
		})
	}
	created.Status = status
	_, err = accounts.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// allApplied checks that all ClusterPermissions are applied and that all their conditions are True.
func (a *auditor) allApplied(t *testing.T) {
	t.Helper()
	permissions := framework.Must(a.direct.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
	if len(permissions.Items) != a.permissions() {
		t.Fatalf("ClusterPermissions = %d, want %d", len(permissions.Items), a.permissions())
	}
	for _, cp := range permissions.Items {
		for _, condition := range cp.Status.Conditions {
			if err := framework.HasCondition(&cp, condition.Type, metav1.ConditionTrue); err != nil {
				t.Fatalf("cluster %s: %v", cp.Namespace, err)
			}
		}
		if err := framework.HasCondition(&cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue); err != nil {
			t.Fatalf("cluster %s: %v", cp.Namespace, err)
		}
	}
}

// workVersions returns the resource versions of all ManifestWorks.
func (a *auditor) workVersions(t *testing.T) map[types.NamespacedName]string {
	t.Helper()
	works := framework.Must(a.direct.WorkV1().ManifestWorks(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
	out := map[types.NamespacedName]string{}
	for _, work := range works.Items {
		out[types.NamespacedName{Namespace: work.Namespace, Name: work.Name}] = work.ResourceVersion
	}
	return out
}

func (a *auditor) movesAccount(t *testing.T) {
	cluster, name := scaleCluster(a.clusters/2), scaleAccount(1)
	want := map[types.NamespacedName]*rbacv1alpha1.ClusterPermission{}
	permissions := framework.Must(a.direct.RbacV1alpha1().ClusterPermissions(cluster).List(t.Context(), metav1.ListOptions{}))(t)
	for _, cp := range permissions.Items {
		if slices.Contains(render.AccountNames(&cp), name) {
			want[types.NamespacedName{Namespace: cluster, Name: render.WorkName(&cp)}] = &cp
		}
	}
	seen, before := a.quiet(t, a.permissions()), a.workVersions(t)
	if len(want) != scaleOfCluster/scaleAccounts || len(before) != a.permissions() {
		t.Fatalf("%d ClusterPermissions name account %s, %d ManifestWorks exist, want %d and %d",
			len(want), name, len(before), scaleOfCluster/scaleAccounts, a.permissions())
	}

	accounts := a.direct.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	moved := framework.Must(accounts.Get(t.Context(), name, metav1.GetOptions{}))(t)
	moved.Status.ServiceAccountRef.Namespace = "moved"
	framework.Must(accounts.UpdateStatus(t.Context(), moved, metav1.UpdateOptions{}))(t)
	for _, cp := range want {
		a.rendersAccount(t, cp, "moved")
	}
	// This shows that the counters include the writes of the server, so that later zero counts are
	// meaningful.
	if now := a.quiet(t, a.permissions()); now.revision == seen.revision || now.requests <= seen.requests+len(want) {
		t.Errorf("storage revision %s -> %s with %d writing requests, want a new revision and more than %d requests",
			seen.revision, now.revision, now.requests-seen.requests, len(want))
	}

	after := a.workVersions(t)
	for work, version := range after {
		if changed := before[work] != version; changed != (want[work] != nil) {
			t.Errorf("ManifestWork %s: changed = %t, want %t", work, changed, !changed)
		}
	}
	if !maps.EqualFunc(before, after, func(string, string) bool { return true }) {
		t.Errorf("ManifestWorks after the move = %d, before = %d, want the same names", len(after), len(before))
	}
	for work := range want {
		current := framework.Must(a.direct.WorkV1().ManifestWorks(cluster).Get(t.Context(), work.Name, metav1.GetOptions{}))(t)
		if current.Generation != 2 {
			t.Errorf("updates of ManifestWork %s = %d, want 1 for one change", work, current.Generation-1)
		}
	}
	// The next subtest expects that all ManifestWorks are reported as applied.
	if err := framework.ReportWorks(t.Context(), a.direct, cluster); err != nil {
		t.Fatal(err)
	}
}

// rendersAccount waits until the ManifestWork of a ClusterPermission binds a ServiceAccount in the
// given namespace of the managed cluster, and none in another namespace.
func (a *auditor) rendersAccount(t *testing.T, cp *rbacv1alpha1.ClusterPermission, namespace string) {
	t.Helper()
	framework.Eventually(t, "the ManifestWork of "+cp.Name+" binds a ServiceAccount in namespace "+namespace, func(ctx context.Context) error {
		work, err := a.direct.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		found := false
		for _, manifest := range work.Spec.Workload.Manifests {
			var binding rbacv1.RoleBinding
			if err := json.Unmarshal(manifest.Raw, &binding); err != nil {
				return err
			}
			for _, subject := range binding.Subjects {
				if subject.Kind != rbacv1.ServiceAccountKind {
					continue
				}
				if found = true; subject.Namespace != namespace {
					return fmt.Errorf("RoleBinding %s binds ServiceAccount %s/%s", binding.Name, subject.Namespace, subject.Name)
				}
			}
		}
		if !found {
			return fmt.Errorf("%d manifests bind no ServiceAccount, want one", len(work.Spec.Workload.Manifests))
		}
		return nil
	})
}

func (a *auditor) staysIdle(t *testing.T) {
	window := time.Duration(framework.Environment(t, "SCALE_IDLE_SECONDS", idleSeconds)) * time.Second
	before := a.quiet(t, a.permissions())
	renewed := before.renewals
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, window, true, func(ctx context.Context) (bool, error) {
		now, err := a.writes(ctx)
		if ctx.Err() != nil {
			return false, nil // the window is over
		}
		if err != nil {
			return false, err
		}
		renewed = now.renewals
		return false, now.sameAs(before)
	})
	if !wait.Interrupted(err) {
		t.Fatal(err)
	}
	// A server without the leases writes nothing, so the check above requires that it renews them.
	if renewed == before.renewals {
		t.Errorf("lease renewals = %d, want more than %[1]d", before.renewals)
	}
}

func (a *auditor) startsAgain(t *testing.T) {
	before := a.quiet(t, a.permissions())
	if err := a.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := a.quiet(t, a.permissions())
	before.requests = 0 // the counter of the new process starts at 0
	if err := after.sameAs(before); err != nil {
		t.Error(err)
	}
	if after.renewals == before.renewals {
		t.Errorf("lease renewals = %d, want more than %[1]d", before.renewals)
	}
}
