package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestPermissionOfAccount checks that the token of an account has the permissions of a
// ClusterPermission on the managed cluster, and no others. It has them as soon as both objects
// exist.
func TestPermissionOfAccount(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "permitted"
	framework.CreatePermission(t, f.OCM, framework.PermissionForAccount(framework.Cluster1, name, name))
	f.undelivered(t, framework.Cluster1, name, "ManagedServiceAccount permitted does not exist")

	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, name))
	hub := framework.Must(clusterclient.NewHub(f.Hub.AdminConfig()))(t)
	source := framework.Must(hub.Source(framework.Cluster1, name, clusterclient.Options{}))(t)
	go source.Run(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	config := framework.Must(source.Config(ctx))(t)
	robot := framework.Must(kubernetes.NewForConfig(config))(t)
	framework.Eventually(t, "the account is allowed to list pods", func(ctx context.Context) error {
		_, err := robot.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := robot.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list of Secrets by the account = %v, want 403", err)
	}
	framework.Eventually(t, "ClusterPermission "+name+" is fully delivered and applied", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		return errors.Join(framework.HasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionTrue),
			framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue))
	})

	// Deleting the ServiceAccount revokes the token at once, without rotation. The same client
	// continues with the next token.
	before := framework.Must(f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	if err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the client is authenticated as the new ServiceAccount", func(ctx context.Context) error {
		review, err := robot.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil && review.Status.UserInfo.UID == string(before.UID) {
			err = errors.New("the client is authenticated as the deleted ServiceAccount")
		}
		return err
	})
	if _, err := robot.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list of pods with the new token = %v, want nil", err)
	}
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "RoleBinding default/"+name+" does not exist", func(ctx context.Context) error {
		_, err := f.ManagedClient.RbacV1().RoleBindings("default").Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	f.undelivered(t, framework.Cluster1, name, "does not exist")
	if _, err := f.ManagedClient.RbacV1().Roles("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("get Role default/%s = %v, want nil, because the Role needs no account", name, err)
	}
}

// TestBindingFollowsTheReport checks that the binding refers to the ServiceAccount that the agent
// of the cluster reports for the account.
func TestBindingFollowsTheReport(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cluster := f.SilentCluster(t)
	const name = "followed"
	cp := framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(cluster).Create(t.Context(), framework.PermissionForAccount(cluster, name, name), metav1.CreateOptions{}))(t)
	created := framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, name))
	f.undelivered(t, cluster, name, "has not been reported by the agent of this cluster yet")

	_, agent := f.AgentOf(t, cluster)
	report := func(change func(*authenticationv1beta1.ManagedServiceAccountStatus)) {
		t.Helper()
		framework.Eventually(t, "the agent has reported the status of ManagedServiceAccount "+name, func(ctx context.Context) error {
			accounts := agent.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
			current, err := accounts.Get(ctx, created.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(&current.Status)
			_, err = accounts.UpdateStatus(ctx, current, metav1.UpdateOptions{})
			return err
		})
	}
	for _, namespace := range []string{"where-the-agent-is", "where-it-has-moved"} {
		report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
			status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: namespace, Name: name}
		})
		f.rendersSubject(t, cp, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	}

	// A new token does not change the ManifestWork.
	before := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: authenticationv1beta1.ConditionTokenReported,
			Status: metav1.ConditionTrue, Reason: authenticationv1beta1.ReasonTokenReported})
	})
	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) { status.ServiceAccountRef = nil })
	// The upstream agent does not report its ServiceAccount. The server then uses the namespace of the
	// add-on.
	f.rendersSubject(t, cp, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: framework.AccountsNamespace, Name: name})
	after := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
	if after.Generation != before.Generation+1 {
		t.Errorf("generation of the ManifestWork = %d, want %d after one change", after.Generation, before.Generation+1)
	}

	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: authenticationv1beta1.ConditionAllServiceAccountPresent,
			Status: metav1.ConditionFalse, Reason: authenticationv1beta1.ReasonServiceAccountConflict})
	})
	f.undelivered(t, cluster, name, authenticationv1beta1.ReasonServiceAccountConflict)
	f.rendersSubject(t, cp)
}

// storesAccounts checks a hub with its own CustomResourceDefinition of
// ManagedServiceAccounts. The upstream add-on creates it later, or never. The server does not wait
// for it.
func (o *overlaid) storesAccounts(t *testing.T) {
	ctx, f := t.Context(), o.fleet
	const name = "kept-by-the-hub"
	framework.CreatePermission(t, f.OCM, framework.Permission("without-accounts"))
	f.PermissionSays(t, framework.Cluster1, "without-accounts", rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionForAccount(framework.Cluster1, name, name))
	f.undelivered(t, framework.Cluster1, name, "does not exist")

	framework.Apply(t, o.cluster, framework.CRD(t, "test", "clusterclient", "testdata", "managedserviceaccounts.crd.yaml"))
	reported := framework.NewAccount(framework.Cluster1, name)
	reported.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: name, LastRefreshTimestamp: metav1.Now()}
	framework.Eventually(t, "ManagedServiceAccount "+name+" is created", func(ctx context.Context) error {
		_, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(ctx, reported, metav1.CreateOptions{})
		return err
	})
	f.rendersSubject(t, cp, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: framework.AccountsNamespace, Name: name})
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.rendersSubject(t, cp)
}

// undelivered waits until the condition FullyDelivered of a ClusterPermission is False, with a text
// in its message.
func (f *fleet) undelivered(t *testing.T, namespace, name, want string) {
	t.Helper()
	framework.Eventually(t, "condition FullyDelivered of ClusterPermission "+name+" is False: "+want, func(ctx context.Context) error {
		cp, err := f.OCM.RbacV1alpha1().ClusterPermissions(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := framework.HasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse); err != nil {
			return err
		}
		if got := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionFullyDelivered).Message; !strings.Contains(got, want) {
			return fmt.Errorf("message = %q", got)
		}
		return nil
	})
}

// rendersSubject waits until the bindings in the ManifestWork have exactly these subjects. Without
// subjects, the ManifestWork must contain no binding.
func (f *fleet) rendersSubject(t *testing.T, cp *rbacv1alpha1.ClusterPermission, want ...rbacv1.Subject) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the ManifestWork of ClusterPermission %s binds %v", cp.Name, want), func(ctx context.Context) error {
		work, err := f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []rbacv1.Subject
		for _, manifest := range work.Spec.Workload.Manifests {
			var binding rbacv1.RoleBinding
			if err := json.Unmarshal(manifest.Raw, &binding); err != nil {
				return err
			}
			got = append(got, binding.Subjects...)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("subjects = %v", got)
		}
		return nil
	})
}
