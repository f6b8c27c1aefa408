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
	scaleClusters   = 100
	scaleAccounts   = 5  // of each cluster
	scaleOfCluster  = 10 // permissions of each cluster, so each account has two
	scaleTotal      = scaleClusters * scaleOfCluster
	scaleRequesters = 16
	// idleWindow is for how long nothing may be written.
	idleWindow = time.Minute
)

// scaleRole is a role of the hub that some of the permissions deliver.
var scaleRole = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scale-viewer"}, Rules: framework.ReadPods}

func scaleCluster(i int) string { return fmt.Sprintf("scale-%03d", i) }

func scaleAccount(i int) string { return fmt.Sprintf("account-%d", i%scaleAccounts) }

// scalePermission is the i-th permission of a cluster. All have a role, bindings
// and an account, some select namespaces, and some deliver a role of the hub.
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

// A thousand ClusterPermissions cost nothing while nothing changes, not even when
// the server is started again, and a change writes the works that it concerns and
// no others.
func TestThousandPermissions(t *testing.T) {
	t.Parallel()
	a := auditedFleet(t)
	framework.Must(a.HubClient.RbacV1().ClusterRoles().Create(t.Context(), scaleRole, metav1.CreateOptions{}))(t)
	each(t, scaleClusters, func(ctx context.Context, i int) error { return a.fill(ctx, scaleCluster(i)) })
	a.quiet(t, scaleTotal)
	each(t, scaleClusters, func(ctx context.Context, i int) error { return framework.ReportWorks(ctx, a.direct, scaleCluster(i)) })
	made := a.quiet(t, scaleTotal)
	a.allApplied(t)
	if made.renewals == 0 || len(made.others) < scaleClusters {
		t.Fatalf("the hub has logged %d renewals of leases and %d other writes of the server", made.renewals, len(made.others))
	}

	// Each step begins when all is quiet, since what it does is then all that happens.
	t.Run("an account that moves changes two works", a.movesAccount)
	t.Run("an idle server writes nothing", a.staysIdle)
	t.Run("a new start writes nothing", a.startsAgain)
}

// each calls do for the first count numbers, some at a time.
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

// fill joins a cluster, and makes what its administrator and its agent would make.
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

// reportAccount creates an account, and reports it and its token as an agent does.
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

// allApplied fails unless everything that was made is delivered and reported.
func (a *auditor) allApplied(t *testing.T) {
	t.Helper()
	permissions := framework.Must(a.direct.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
	if len(permissions.Items) != scaleTotal {
		t.Fatalf("there are %d ClusterPermissions", len(permissions.Items))
	}
	for _, cp := range permissions.Items {
		for _, condition := range cp.Status.Conditions {
			if err := framework.HasCondition(&cp, condition.Type, metav1.ConditionTrue); err != nil {
				t.Fatalf("%s: %v", cp.Namespace, err)
			}
		}
		if err := framework.HasCondition(&cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue); err != nil {
			t.Fatalf("%s: %v", cp.Namespace, err)
		}
	}
}

// workVersions are the resource versions of all works.
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
	cluster, name := scaleCluster(scaleClusters/2), scaleAccount(1)
	want := map[types.NamespacedName]*rbacv1alpha1.ClusterPermission{}
	permissions := framework.Must(a.direct.RbacV1alpha1().ClusterPermissions(cluster).List(t.Context(), metav1.ListOptions{}))(t)
	for _, cp := range permissions.Items {
		if slices.Contains(render.AccountNames(&cp), name) {
			want[types.NamespacedName{Namespace: cluster, Name: render.WorkName(&cp)}] = &cp
		}
	}
	seen, before := a.quiet(t, scaleTotal), a.workVersions(t)
	if len(want) != scaleOfCluster/scaleAccounts || len(before) != scaleTotal {
		t.Fatalf("%d ClusterPermissions name the account; there are %d works", len(want), len(before))
	}

	accounts := a.direct.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	moved := framework.Must(accounts.Get(t.Context(), name, metav1.GetOptions{}))(t)
	moved.Status.ServiceAccountRef.Namespace = "moved"
	framework.Must(accounts.UpdateStatus(t.Context(), moved, metav1.UpdateOptions{}))(t)
	for _, cp := range want {
		a.rendersAccount(t, cp, "moved")
	}
	// Writes are seen in this way, so that none seen later means none.
	if now := a.quiet(t, scaleTotal); now.revision == seen.revision || now.requests <= seen.requests+len(want) {
		t.Errorf("the storage went from revision %s to %s, and %d requests wrote", seen.revision, now.revision, now.requests-seen.requests)
	}

	after := a.workVersions(t)
	for work, version := range after {
		if changed := before[work] != version; changed != (want[work] != nil) {
			t.Errorf("ManifestWork %s: changed is %t", work, changed)
		}
	}
	if !maps.EqualFunc(before, after, func(string, string) bool { return true }) {
		t.Errorf("there were %d works, and there are %d", len(before), len(after))
	}
	for work := range want {
		current := framework.Must(a.direct.WorkV1().ManifestWorks(cluster).Get(t.Context(), work.Name, metav1.GetOptions{}))(t)
		if current.Generation != 2 {
			t.Errorf("ManifestWork %s was written %d times for one change", work, current.Generation-1)
		}
	}
	// As it was found: what there is is applied.
	if err := framework.ReportWorks(t.Context(), a.direct, cluster); err != nil {
		t.Fatal(err)
	}
}

// rendersAccount waits until the work of a ClusterPermission binds a
// ServiceAccount in a namespace of the managed cluster, and in no other.
func (a *auditor) rendersAccount(t *testing.T, cp *rbacv1alpha1.ClusterPermission, namespace string) {
	t.Helper()
	framework.Eventually(t, "the work of "+cp.Name+" follows the account", func(ctx context.Context) error {
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
					return fmt.Errorf("%s is for %s/%s", binding.Name, subject.Namespace, subject.Name)
				}
			}
		}
		if !found {
			return fmt.Errorf("none of its %d manifests binds a ServiceAccount", len(work.Spec.Workload.Manifests))
		}
		return nil
	})
}

func (a *auditor) staysIdle(t *testing.T) {
	before := a.quiet(t, scaleTotal)
	renewed := before.renewals
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, idleWindow, true, func(ctx context.Context) (bool, error) {
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
	// Otherwise there is no leader, and nobody who could have written.
	if renewed == before.renewals {
		t.Error("the server has not renewed its leases")
	}
}

func (a *auditor) startsAgain(t *testing.T) {
	before := a.quiet(t, scaleTotal)
	if err := a.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := a.quiet(t, scaleTotal)
	before.requests = 0 // the new process counts from the start
	if err := after.sameAs(before); err != nil {
		t.Error(err)
	}
	if after.renewals == before.renewals {
		t.Error("the server has not renewed its leases")
	}
}
