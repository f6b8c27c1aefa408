package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const accessRole = "open-cluster-management:managedcluster:serviceaccount-secrets"

func TestManagedServiceAccountReportsAToken(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "whole-life-account"
	asked := framework.NewAccount(framework.Cluster1, name)
	asked.Spec.Rotation.Validity = "24h"
	asked.Spec.Audiences = []string{"https://kubernetes.default.svc.cluster.local", "vault"}
	framework.CreateAccount(t, f.OCM, asked)
	account, secret := f.AccountReported(t, framework.Cluster1, name)

	owner := metav1.OwnerReference{APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: name, UID: account.UID}
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0] != owner {
		t.Errorf("owners of the Secret = %v, want the account", secret.OwnerReferences)
	}
	if secret.Type != "Opaque" || secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true" || len(secret.Data) != 2 {
		t.Errorf("Secret has type %s, labels %v and %d keys, want Opaque, the label of accounts and 2 keys", secret.Type, secret.Labels, len(secret.Data))
	}
	if ref := account.Status.ServiceAccountRef; ref == nil || ref.Namespace != framework.AccountsNamespace || ref.Name != name || ref.UID == "" {
		t.Errorf("serviceAccountRef = %v, want %s/%s with its UID", ref, framework.AccountsNamespace, name)
	}
	if ref := account.Status.TokenSecretRef; ref == nil || ref.Name != name || time.Since(ref.LastRefreshTimestamp.Time) > time.Hour {
		t.Errorf("tokenSecretRef = %v, want %s with a refresh in the last hour", ref, name)
	}
	f.AccountSays(t, framework.Cluster1, name, authenticationv1beta1.ConditionSecretCreated, metav1.ConditionTrue, authenticationv1beta1.ReasonSecretCreated)
	f.AccountSays(t, framework.Cluster1, name, authenticationv1beta1.ConditionAllServiceAccountPresent, metav1.ConditionTrue, authenticationv1beta1.ReasonServiceAccountPresent)

	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ServiceAccount and the Secret are deleted", func(ctx context.Context) error {
		_, onCluster := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(ctx, name, metav1.GetOptions{})
		_, onHub := f.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		return framework.Gone(onCluster, onHub)
	})
}

// Defect 3: after any change of the Secret, the agent restores a token that the cluster accepts.
// Foreign labels of the Secret stay.
func TestSecretIsRepaired(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "mended"
	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, name))
	secrets := f.HubClient.CoreV1().Secrets(framework.Cluster1)
	repaired := func(what string, harm func(ctx context.Context) error) {
		t.Run(what, func(t *testing.T) {
			_, before := f.AccountReported(t, framework.Cluster1, name)
			if err := harm(t.Context()); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "the cluster accepts the token in the Secret", func(ctx context.Context) error {
				secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if secret.UID == before.UID && secret.Labels["team"] != "blue" {
					return fmt.Errorf("labels = %v, want team=blue kept", secret.Labels)
				}
				return framework.AcceptsToken(ctx, f.Members[0].Cluster, secret)
			})
		})
	}
	repaired("deleted", func(ctx context.Context) error { return secrets.Delete(ctx, name, metav1.DeleteOptions{}) })
	for _, harm := range []struct{ name, data string }{
		{"token removed", `{"token":null}`},
		{"malformed", `{"token":"bm90IGEgdG9rZW4="}`},
		{"CA bundle replaced", `{"ca.crt":"bm90IGEgY2VydGlmaWNhdGU="}`},
	} {
		repaired(harm.name, func(ctx context.Context) error {
			_, err := secrets.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"blue"}},"data":`+harm.data+`}`), metav1.PatchOptions{})
			return err
		})
	}
}

// If a relabelled Secret still names its account as the owner, the agent restores its labels. A Secret
// of another client is a conflict. The account reports the conflict once, until the Secret is deleted.
// A Secret without an owner is also a conflict, unless the agent restores the owner before the hub
// revokes its access to the Secret.
func TestSecretDetachedFromAccount(t *testing.T) {
	t.Parallel()
	f := shared(t)
	secrets := f.HubClient.CoreV1().Secrets(framework.Cluster1)
	patch := func(name, patch string) error {
		_, err := secrets.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	t.Run("without its label", func(t *testing.T) {
		const name = "unlabelled"
		framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, name))
		f.AccountReported(t, framework.Cluster1, name)
		if err := patch(name, `{"metadata":{"labels":null}}`); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the agent has restored the label of Secret "+name, func(ctx context.Context) error {
			secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
			if err == nil && secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true" {
				err = fmt.Errorf("labels = %v", secret.Labels)
			}
			return err
		})
		f.settles(t, name, authenticationv1beta1.ReasonTokenReported)
	})
	for what, harm := range map[string]func(name string) error{
		"without its owner": func(name string) error { return patch(name, `{"metadata":{"ownerReferences":null}}`) },
		"replaced by another client": func(name string) error {
			if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := secrets.Create(t.Context(), framework.NewSecret(name), metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := strings.ReplaceAll(what, " ", "-")
			framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, name))
			f.AccountReported(t, framework.Cluster1, name)
			if err := harm(name); err != nil {
				t.Fatal(err)
			}
			foreign := framework.Must(secrets.Get(t.Context(), name, metav1.GetOptions{}))(t)
			if what == "without its owner" && f.restores(t, name) {
				f.settles(t, name, authenticationv1beta1.ReasonTokenReported)
				return
			}
			f.settles(t, name, authenticationv1beta1.ReasonSecretConflict)
			if got := framework.Must(secrets.Get(t.Context(), name, metav1.GetOptions{}))(t); got.ResourceVersion != foreign.ResourceVersion {
				t.Errorf("resourceVersion of the foreign Secret = %s, want it unchanged: %s", got.ResourceVersion, foreign.ResourceVersion)
			}
			if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			f.settles(t, name, authenticationv1beta1.ReasonTokenReported)
		})
	}
}

// restores waits until the agent either reports that the Secret of an account is a conflict, or has
// restored the owner of the Secret. It reports whether the owner was restored.
func (f *fleet) restores(t *testing.T, name string) bool {
	t.Helper()
	restored := false
	framework.Eventually(t, "the owner of Secret "+name+" is restored, or the account reports a conflict", func(ctx context.Context) error {
		account, err := f.GetAccount(ctx, framework.Cluster1, name)
		if err != nil {
			return err
		}
		secret, err := f.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		restored = slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == account.UID })
		reported := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionTokenReported)
		if restored || reported != nil && reported.Reason == authenticationv1beta1.ReasonSecretConflict {
			return nil
		}
		return fmt.Errorf("owners = %v, conditions = %v", secret.OwnerReferences, account.Status.Conditions)
	})
	return restored
}

// settles waits until TokenReported of an account of cluster1 has a reason and the account is not
// written for three seconds.
func (f *fleet) settles(t *testing.T, name, reason string) {
	t.Helper()
	framework.Eventually(t, "TokenReported of "+name+" stays "+reason, func(ctx context.Context) error {
		before, err := f.GetAccount(ctx, framework.Cluster1, name)
		if err != nil {
			return err
		}
		reported := meta.FindStatusCondition(before.Status.Conditions, authenticationv1beta1.ConditionTokenReported)
		if reported == nil || reported.Reason != reason {
			return fmt.Errorf("conditions = %v", before.Status.Conditions)
		}
		if held := before.Status.TokenSecretRef != nil; held != (reported.Status == metav1.ConditionTrue) {
			return fmt.Errorf("tokenSecretRef = %v while TokenReported is %s", before.Status.TokenSecretRef, reported.Status)
		}
		changes, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + name, ResourceVersion: before.ResourceVersion,
		})
		if err != nil {
			return err
		}
		defer changes.Stop()
		select {
		case event := <-changes.ResultChan():
			return fmt.Errorf("watch event = %v, want no write", event.Type)
		case <-time.After(3 * time.Second):
			return nil
		}
	})
}

// Defect 8: a hostile agent can access the Secrets of its own accounts by name, and no other Secrets or
// accounts.
func TestHostileAgent(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const mine, foreign = "hostile-own", "hostile-foreign"
	ctx := t.Context()
	secrets := f.HubClient.CoreV1().Secrets(framework.Cluster1)
	treasure := framework.Must(secrets.Create(ctx, framework.NewSecret(foreign), metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := secrets.Delete(context.WithoutCancel(t.Context()), foreign, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, mine))
	victim := framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, foreign))
	f.AccountReported(t, framework.Cluster1, mine)
	conflict := f.AccountSays(t, framework.Cluster1, foreign, authenticationv1beta1.ConditionSecretCreated, metav1.ConditionFalse, authenticationv1beta1.ReasonSecretConflict)
	if conflict.Status.TokenSecretRef != nil {
		t.Errorf("tokenSecretRef of the account with a conflict = %v, want nil", conflict.Status.TokenSecretRef)
	}

	hub, ocm := f.agent(t)
	asAgent := hub.CoreV1().Secrets(framework.Cluster1)
	framework.Eventually(t, "the agent can read the Secret of its account", func(ctx context.Context) error {
		_, err := asAgent.Get(ctx, mine, metav1.GetOptions{})
		return err
	})
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s = %v, want 403", what, err)
		}
	}
	_, err := asAgent.Get(ctx, foreign, metav1.GetOptions{})
	forbidden("reading a foreign Secret with the name of an account", err)
	_, err = asAgent.Patch(ctx, foreign, types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	forbidden("patching the foreign Secret", err)
	_, err = asAgent.List(ctx, metav1.ListOptions{})
	forbidden("listing Secrets", err)
	_, err = asAgent.Watch(ctx, metav1.ListOptions{})
	forbidden("watching Secrets", err)
	_, err = hub.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, framework.NewSecret("elsewhere"), metav1.CreateOptions{})
	forbidden("creating a Secret in another namespace", err)
	_, err = ocm.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(ctx, framework.NewAccount(framework.Cluster1, "invented"), metav1.CreateOptions{})
	forbidden("creating an account", err)
	victim.Spec.Audiences = []string{"mine"}
	_, err = ocm.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Update(ctx, victim, metav1.UpdateOptions{})
	forbidden("updating an account", err)
	_, err = hub.RbacV1().Roles(framework.Cluster1).Update(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: accessRole}}, metav1.UpdateOptions{})
	forbidden("updating its Role", err)

	// Consumers send the content of the Secret in tokenSecretRef to the cluster, so it must be the
	// Secret of the account.
	_, err = ocm.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Patch(ctx, mine, types.MergePatchType,
		[]byte(`{"status":{"tokenSecretRef":{"name":"`+foreign+`","lastRefreshTimestamp":"2026-01-02T03:04:05Z"}}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"status.tokenSecretRef.name"}) {
		t.Errorf("Patch(tokenSecretRef to a foreign Secret) = %v, want 422", err)
	}
	if got := framework.Must(secrets.Get(ctx, foreign, metav1.GetOptions{}))(t); got.ResourceVersion != treasure.ResourceVersion {
		t.Errorf("resourceVersion of the foreign Secret = %s, want it unchanged: %s", got.ResourceVersion, treasure.ResourceVersion)
	}
}

// A user with permission to create Secrets can have the hub store the token of a ServiceAccount in
// one. If an agent creates such a Secret with the name of an account, it cannot read the Secret.
func TestHostileAgentCannotMintHubTokens(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "minted"
	silent := f.SilentCluster(t)
	target := framework.CreateAccount(t, f.OCM, framework.NewAccount(silent, name))
	hub, _ := f.AgentOf(t, silent)
	framework.Eventually(t, "the agent can create Secrets", func(ctx context.Context) error {
		bait := framework.NewSecret(name)
		bait.Type = "kubernetes.io/service-account-token"
		bait.Data = nil
		bait.Annotations = map[string]string{"kubernetes.io/service-account.name": "default"}
		bait.Labels = map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}
		bait.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: name, UID: target.UID,
		}}
		_, err := hub.CoreV1().Secrets(silent).Create(ctx, bait, metav1.CreateOptions{})
		return err
	})
	// Access to the Secret of a second account proves that the server has updated the Role since.
	const after = "minted-after"
	second := framework.CreateAccount(t, f.OCM, framework.NewAccount(silent, after))
	honest := framework.NewSecret(after)
	honest.Labels = map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}
	honest.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: after, UID: second.UID,
	}}
	if _, err := hub.CoreV1().Secrets(silent).Create(t.Context(), honest, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the agent can read the Secret of the second account", func(ctx context.Context) error {
		_, err := hub.CoreV1().Secrets(silent).Get(ctx, after, metav1.GetOptions{})
		return err
	})
	if _, err := hub.CoreV1().Secrets(silent).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Get(Secret with the token of a hub ServiceAccount) = %v, want 403", err)
	}
}

// The Role that grants an agent access to Secrets follows its accounts. The server restores the
// Role after changes. It deletes the Role with the last account, or if the hub no longer accepts
// the cluster.
func TestAccessFollowsTheAccounts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	silent := f.SilentCluster(t)
	roles, bindings := f.HubClient.RbacV1().Roles(silent), f.HubClient.RbacV1().RoleBindings(silent)
	there := func(ctx context.Context) error {
		_, role := roles.Get(ctx, accessRole, metav1.GetOptions{})
		_, binding := bindings.Get(ctx, accessRole, metav1.GetOptions{})
		return errors.Join(role, binding)
	}
	absent := func(ctx context.Context) error {
		_, role := roles.Get(ctx, accessRole, metav1.GetOptions{})
		_, binding := bindings.Get(ctx, accessRole, metav1.GetOptions{})
		return framework.Gone(role, binding)
	}
	// The server creates the Role of a later cluster, which has an account.
	later := framework.CreateAccount(t, f.OCM, framework.NewAccount(f.SilentCluster(t), "later"))
	await.Stays(t, "the absence of the Role and the RoleBinding of a cluster without an account", func(ctx context.Context) error {
		_, err := f.HubClient.RbacV1().Roles(later.Namespace).Get(ctx, accessRole, metav1.GetOptions{})
		return err
	}, absent)
	only := framework.CreateAccount(t, f.OCM, framework.NewAccount(silent, "only"))
	framework.Eventually(t, "the Role and the RoleBinding exist", there)

	if err := errors.Join(roles.Delete(t.Context(), accessRole, metav1.DeleteOptions{}),
		bindings.Delete(t.Context(), accessRole, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the Role and the RoleBinding are created again", there)
	widened := `{"metadata":{"labels":null},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`
	if _, err := roles.Patch(t.Context(), accessRole, types.MergePatchType, []byte(widened), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the rules of the Role are restored", func(ctx context.Context) error {
		role, err := roles.Get(ctx, accessRole, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Verbs, []string{"create"}) {
			return fmt.Errorf("rules = %v", role.Rules)
		}
		return nil
	})

	accept := func(accepted bool) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, accepted)
		if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), silent, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	accept(false)
	framework.Eventually(t, "the Role and the RoleBinding of the denied cluster are deleted", absent)
	accept(true)
	framework.Eventually(t, "the accepted cluster has the Role and the RoleBinding again", there)
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(silent).Delete(t.Context(), only.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the Role and the RoleBinding are deleted with the last account", absent)
}

// The server deletes an account after its time to live, and not earlier. A finalizer delays the
// deletion.
func TestTTLSecondsAfterCreation(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, hold = "short-lived", "tests.open-cluster-management.io/hold"
	short := framework.NewAccount(framework.Cluster1, name)
	short.Spec.TTLSecondsAfterCreation = new(int32(3600))
	short.Finalizers = []string{hold}
	created := framework.CreateAccount(t, f.OCM, short)
	f.AccountReported(t, framework.Cluster1, name)
	accounts := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1)
	patch := func(patch string) {
		t.Helper()
		if _, err := accounts.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec":{"ttlSecondsAfterCreation":2}}`)
	framework.Eventually(t, "account "+name+" is being deleted", func(ctx context.Context) error {
		held, err := accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held.DeletionTimestamp == nil {
			return errors.New("deletionTimestamp is not set")
		}
		if held.DeletionTimestamp.Before(&metav1.Time{Time: created.CreationTimestamp.Add(2 * time.Second)}) {
			t.Errorf("deletionTimestamp = %s, want at least two seconds after the creation at %s", held.DeletionTimestamp, created.CreationTimestamp)
		}
		return nil
	})
	framework.Eventually(t, "the ServiceAccount of "+name+" is deleted", func(ctx context.Context) error {
		_, err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	patch(`{"metadata":{"finalizers":null}}`)
	framework.Eventually(t, "account "+name+" does not exist", func(ctx context.Context) error {
		_, err := accounts.Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// Defect 5: the server sets the condition TokenReported to False when the token has expired.
func TestExpiredTokenIsReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	silent := f.SilentCluster(t)
	expired := framework.CreateAccount(t, f.OCM, framework.NewAccount(silent, "expired"))
	// An agent reported this token before it stopped.
	past := metav1.NewTime(time.Now().Add(-time.Minute))
	expired.Status.ExpirationTimestamp = &past
	expired.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: expired.Name, LastRefreshTimestamp: past}
	expired.Status.Conditions = []metav1.Condition{{
		Type: authenticationv1beta1.ConditionTokenReported, Status: metav1.ConditionTrue,
		Reason: authenticationv1beta1.ReasonTokenReported, LastTransitionTime: past,
	}}
	if _, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(silent).UpdateStatus(t.Context(), expired, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.AccountSays(t, silent, expired.Name, authenticationv1beta1.ConditionTokenReported, metav1.ConditionFalse, authenticationv1beta1.ReasonTokenExpired)
	out, err := f.Kubectl(t, "", "get", "msa", "-n", silent, expired.Name)
	if err != nil || !strings.Contains(out, "expired") {
		t.Errorf("kubectl get prints %s, %v, want expired", out, err)
	}
}
