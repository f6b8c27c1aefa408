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

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/tokens"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// Whoever has the token of an account may do on the cluster what a
// ClusterPermission grants the account, from when both are there, and nothing else.
func TestPermissionOfAccount(t *testing.T) {
	f := shared(t)
	const name = "permitted"
	framework.CreatePermission(t, f.OCM, framework.PermissionForAccount(framework.Cluster1, name, name))
	f.undelivered(t, framework.Cluster1, name, "ManagedServiceAccount permitted does not exist")

	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, name))
	hub := framework.Must(tokens.NewHub(f.Hub.AdminConfig()))(t)
	source := framework.Must(hub.Source(framework.Cluster1, name, tokens.Options{}))(t)
	go source.Run(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), framework.Patience)
	defer cancel()
	config := framework.Must(source.Config(ctx))(t)
	robot := framework.Must(kubernetes.NewForConfig(config))(t)
	framework.Eventually(t, "the account may list pods", func(ctx context.Context) error {
		_, err := robot.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := robot.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v for what nobody has granted, not 403", err)
	}
	framework.Eventually(t, "everything is delivered", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		return errors.Join(framework.HasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionTrue),
			framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue))
	})

	// Not a rotation, but an end at once: the same client goes on with the next token.
	before := framework.Must(f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	if err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the client is the new ServiceAccount", func(ctx context.Context) error {
		review, err := robot.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil && review.Status.UserInfo.UID == string(before.UID) {
			err = errors.New("it is still the old one")
		}
		return err
	})
	if _, err := robot.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("after that: %v", err)
	}
	var listed []tokens.Account
	framework.Eventually(t, "the account is listed as ready", func(ctx context.Context) error {
		var err error
		listed, err = hub.List(ctx, tokens.ListOptions{Name: name})
		if err == nil && (len(listed) != 1 || !listed[0].Ready || listed[0].Cluster != framework.Cluster1) {
			err = fmt.Errorf("got %+v", listed)
		}
		return err
	})

	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the binding is gone", func(ctx context.Context) error {
		_, err := f.ManagedClient.RbacV1().RoleBindings("default").Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	f.undelivered(t, framework.Cluster1, name, "does not exist")
	if _, err := f.ManagedClient.RbacV1().Roles("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("the role, which needs no account: %v", err)
	}
}

// The binding follows what the agent of the cluster says of the account.
func TestBindingFollowsTheReport(t *testing.T) {
	f := shared(t)
	cluster := f.SilentCluster(t)
	const name = "followed"
	cp := framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(cluster).Create(t.Context(), framework.PermissionForAccount(cluster, name, name), metav1.CreateOptions{}))(t)
	created := framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, name))
	f.undelivered(t, cluster, name, "has not been reported by the agent of this cluster yet")

	_, agent := f.AgentOf(t, cluster)
	report := func(change func(*authenticationv1beta1.ManagedServiceAccountStatus)) {
		t.Helper()
		framework.Eventually(t, "the agent has reported", func(ctx context.Context) error {
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

	// A new token is no reason to write anything.
	before := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: authenticationv1beta1.ConditionTokenReported,
			Status: metav1.ConditionTrue, Reason: authenticationv1beta1.ReasonTokenReported})
	})
	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) { status.ServiceAccountRef = nil })
	// The public agent does not say where it has put the ServiceAccount.
	f.rendersSubject(t, cp, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: framework.AccountsNamespace, Name: name})
	after := framework.Must(f.OCM.WorkV1().ManifestWorks(cluster).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
	if after.Generation != before.Generation+1 {
		t.Errorf("the work went from generation %d to %d for one change", before.Generation, after.Generation)
	}

	report(func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: authenticationv1beta1.ConditionAllServiceAccountPresent,
			Status: metav1.ConditionFalse, Reason: authenticationv1beta1.ReasonServiceAccountConflict})
	})
	f.undelivered(t, cluster, name, authenticationv1beta1.ReasonServiceAccountConflict)
	f.rendersSubject(t, cp)
}

// A hub may keep accounts in a CustomResourceDefinition of its own, which comes
// with the public addon or never. Until then nothing waits for it.
func TestHubThatKeepsAccounts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hub := framework.HubThatRunsOCM(t, authenticationv1beta1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion)
	f := &fleet{&framework.Fleet{OCM: framework.OCMClient(t, hub.AdminConfig(), nil)}}
	const name = "kept-by-the-hub"
	framework.CreatePermission(t, f.OCM, framework.Permission("without-accounts"))
	cp := framework.CreatePermission(t, f.OCM, framework.PermissionForAccount(framework.Cluster1, name, name))
	f.undelivered(t, framework.Cluster1, name, "does not exist")

	framework.Apply(t, hub, framework.CRD(t, "pkg", "tokens", "testdata", "managedserviceaccounts.crd.yaml"))
	reported := framework.NewAccount(framework.Cluster1, name)
	reported.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: name, LastRefreshTimestamp: metav1.Now()}
	framework.Eventually(t, "the hub has accounts", func(ctx context.Context) error {
		_, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(ctx, reported, metav1.CreateOptions{})
		return err
	})
	f.rendersSubject(t, cp, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: framework.AccountsNamespace, Name: name})
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.rendersSubject(t, cp)
}

// undelivered waits until a ClusterPermission says why a part of it is not delivered.
func (f *fleet) undelivered(t *testing.T, namespace, name, want string) {
	t.Helper()
	framework.Eventually(t, "the ClusterPermission says that "+want, func(ctx context.Context) error {
		cp, err := f.OCM.RbacV1alpha1().ClusterPermissions(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := framework.HasCondition(cp, rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse); err != nil {
			return err
		}
		if got := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionFullyDelivered).Message; !strings.Contains(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// rendersSubject waits until the binding in the work has exactly some subjects;
// without any there is no binding.
func (f *fleet) rendersSubject(t *testing.T, cp *rbacv1alpha1.ClusterPermission, want ...rbacv1.Subject) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the binding is for %v", want), func(ctx context.Context) error {
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
			return fmt.Errorf("it is for %v", got)
		}
		return nil
	})
}
