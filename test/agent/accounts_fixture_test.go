package agent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	authenticationclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
)

const accountNamespace = agent.DefaultServiceAccountNamespace

// TestAccounts runs the agent with only the permissions that ManagedServiceAccounts require, without
// the permissions for ManifestWorks. The subtests share the cluster and the namespace of the
// ServiceAccounts. Each has its own hub namespace and agent.
func TestAccounts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	if err := f.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "open-cluster-management:agent:apply", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *cluster){
		"acc-reported":            testReported,
		"acc-four-requests":       testFourRequests,
		"acc-sa-deleted":          testServiceAccountDeleted,
		"acc-label-restored":      testLabelRestored,
		"acc-secret-deleted":      testSecretDeleted,
		"acc-secret-repaired":     testSecretRepaired,
		"acc-secret-unmarked":     testSecretWithoutMarks,
		"acc-bad-tokens":          testBadTokens,
		"acc-ca-rollover":         testCARollover,
		"acc-spec-changed":        testSpecChanged,
		"acc-audiences":           testAudiences,
		"acc-rotation":            testRotation,
		"acc-outage":              testOutage,
		"acc-token-reused":        testTokenReused,
		"acc-mint-failure":        testMintFailure,
		"acc-expired":             testExpired,
		"acc-not-adopted":         testNotAdopted,
		"acc-agents-own":          testAgentsOwn,
		"acc-foreign-secret":      testForeignSecret,
		"acc-late-grant":          testLateGrant,
		"acc-late-role":           testLateRole,
		"acc-two-agents":          testTwoAgents,
		"acc-handed-over":         testHandedOver,
		"acc-orphan":              testOrphanedAccount,
		"acc-recreated":           testRecreated,
		"acc-deleting":            testDeletingAccount,
		"acc-invalid-spec":        testInvalidSpec,
		"acc-crash":               testAccountCrash,
		"acc-idle":                testIdleAccounts,
		"acc-rejected":            testRejected,
		"acc-replaced-while-down": testReplacedWhileDown,
		"acc-moved":               testMoved,
		"acc-long-name":           testLongName,
		"acc-not-served":          testNotServed,
		"acc-disabled":            testAccountsDisabled,
		"acc-broad-role":          testBroadRole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.cluster(t)
			c.verify = time.Hour
			test(t, c)
		})
	}
}

// grantSecrets grants the same permissions as the server: the agent can create Secrets, and can read
// and write Secrets that are marked as Secrets of its ManagedServiceAccounts.
func (c *cluster) grantSecrets() {
	c.t.Helper()
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	watcher, err := c.kube.CoreV1().Secrets(c.name).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		names := map[string]bool{}
		for event := range watcher.ResultChan() {
			secret, ok := event.Object.(*corev1.Secret)
			if !ok {
				continue
			}
			before := names[secret.Name]
			if after := event.Type != watch.Deleted && isMarked(secret); after == before {
				continue
			} else if after {
				names[secret.Name] = true
			} else {
				delete(names, secret.Name)
			}
			if err := c.limitRole(ctx, slices.Sorted(maps.Keys(names))); err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// isMarked reports whether a Secret is marked as the Secret of a ManagedServiceAccount.
func isMarked(secret *corev1.Secret) bool {
	return secret.Type == corev1.SecretTypeOpaque && secret.Labels[v1beta1.ManagedServiceAccountLabel] == "true" &&
		slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "ManagedServiceAccount" && owner.Name == secret.Name
		})
}

const secretsRole = "secrets"

func (c *cluster) createRole(rules ...rbacv1.PolicyRule) {
	c.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: secretsRole}, Rules: rules}
	if _, err := c.kube.RbacV1().Roles(c.name).Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.bind("Role", secretsRole)
}

func (c *cluster) limitRole(ctx context.Context, names []string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		role, err := c.kube.RbacV1().Roles(c.name).Get(ctx, secretsRole, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = role.Rules[:1]
		if len(names) > 0 {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "update", "patch"}, ResourceNames: names})
		}
		_, err = c.kube.RbacV1().Roles(c.name).Update(ctx, role, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) msas() authenticationclient.ManagedServiceAccountInterface {
	return c.ocm.AuthenticationV1beta1().ManagedServiceAccounts(c.name)
}

func (c *cluster) serviceAccounts() corev1client.ServiceAccountInterface {
	namespace := c.accountNamespace
	if namespace == "" {
		namespace = accountNamespace
	}
	return c.kube.CoreV1().ServiceAccounts(namespace)
}

func (c *cluster) identity() string { return serviceaccount.Identity(c.name, c.name) }

// createMSA creates a ManagedServiceAccount with the name of the test plus suffix.
func (c *cluster) createMSA(suffix string, change func(*v1beta1.ManagedServiceAccountSpec)) string {
	c.t.Helper()
	account := &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: c.name + suffix}}
	account.Spec.Rotation.Validity = "1h"
	if change != nil {
		change(&account.Spec)
	}
	if _, err := c.msas().Create(c.t.Context(), account, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return account.Name
}

// changeMSA changes either the status or the other fields of a ManagedServiceAccount.
func (c *cluster) changeMSA(name string, change func(*v1beta1.ManagedServiceAccount)) {
	c.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		account, err := c.msas().Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := account.DeepCopy()
		change(account)
		if !equality.Semantic.DeepEqual(before.Status, account.Status) {
			_, err = c.msas().UpdateStatus(c.t.Context(), account, metav1.UpdateOptions{})
		} else {
			_, err = c.msas().Update(c.t.Context(), account, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// nudge sets the condition that the server sets when a Secret has changed. It makes the agent check
// the Secret.
func (c *cluster) nudge(name, reason string) {
	c.t.Helper()
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) {
		meta.SetStatusCondition(&account.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionSecretCreated, Status: metav1.ConditionFalse, Reason: reason, Message: "seen by the server",
		})
	})
}

// msaIs waits until a condition of a ManagedServiceAccount has a reason for the current generation,
// and returns the ManagedServiceAccount.
func (c *cluster) msaIs(name, kind, reason string) *v1beta1.ManagedServiceAccount {
	c.t.Helper()
	var account *v1beta1.ManagedServiceAccount
	c.wait(fmt.Sprintf("condition %s of ManagedServiceAccount %s has reason %s", kind, name, reason), func(ctx context.Context) error {
		var err error
		if account, err = c.msas().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		got := meta.FindStatusCondition(account.Status.Conditions, kind)
		if got == nil || got.Reason != reason || got.ObservedGeneration != account.Generation {
			text, _ := json.Marshal(account.Status)
			return fmt.Errorf("generation = %d, status = %s", account.Generation, text)
		}
		return nil
	})
	return account
}

// reported waits until a ManagedServiceAccount reports its token, and returns it and its Secret. The
// Secret must differ from before in UID or resourceVersion, unless before is nil.
func (c *cluster) reported(name string, before *corev1.Secret) (*v1beta1.ManagedServiceAccount, *corev1.Secret) {
	c.t.Helper()
	var account *v1beta1.ManagedServiceAccount
	var secret *corev1.Secret
	c.wait("ManagedServiceAccount "+name+" reports its token", func(ctx context.Context) error {
		var err error
		if account, err = c.msas().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		text, _ := json.Marshal(account.Status)
		for _, kind := range []string{v1beta1.ConditionAllServiceAccountPresent, v1beta1.ConditionSecretCreated, v1beta1.ConditionTokenReported} {
			got := meta.FindStatusCondition(account.Status.Conditions, kind)
			if got == nil || got.Status != metav1.ConditionTrue || got.ObservedGeneration != account.Generation {
				return fmt.Errorf("status = %s, want condition %s True for generation %d", text, kind, account.Generation)
			}
		}
		if secret, err = c.secret(name); err != nil {
			return err
		}
		if ref := account.Status.TokenSecretRef; ref == nil || ref.Name != name || ref.ResourceVersion != secret.ResourceVersion {
			return fmt.Errorf("status = %s, want tokenSecretRef with resourceVersion %s", text, secret.ResourceVersion)
		}
		if before != nil && (secret.UID == before.UID && secret.ResourceVersion == before.ResourceVersion) {
			return fmt.Errorf("resourceVersion of the Secret = %s, want another", secret.ResourceVersion)
		}
		return nil
	})
	return account, secret
}

func (c *cluster) secret(name string) (*corev1.Secret, error) {
	return c.kube.CoreV1().Secrets(c.name).Get(c.t.Context(), name, metav1.GetOptions{})
}

func (c *cluster) serviceAccount(name string) *corev1.ServiceAccount {
	c.t.Helper()
	account, err := c.serviceAccounts().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return account
}

func (c *cluster) noServiceAccount(name string) {
	c.t.Helper()
	eventually(c.t, "ServiceAccount "+name+" does not exist", func(ctx context.Context) error {
		_, err := c.serviceAccounts().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Get() = %v, want NotFound", err)
	})
}

func (c *cluster) changeSecret(name string, change func(*corev1.Secret)) *corev1.Secret {
	c.t.Helper()
	secret, err := c.secret(name)
	if err != nil {
		c.t.Fatal(err)
	}
	change(secret)
	if secret, err = c.kube.CoreV1().Secrets(c.name).Update(c.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return secret
}

// accepts returns the user name of a token, or "" if the managed cluster rejects the token.
func (c *cluster) accepts(token []byte, audiences ...string) string {
	c.t.Helper()
	review, err := c.kube.AuthenticationV1().TokenReviews().Create(c.t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(token), Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if !review.Status.Authenticated {
		return ""
	}
	return review.Status.User.Username
}

// revoked waits until the managed cluster rejects the token of a Secret. API servers cache successful
// authentication for some seconds.
func (c *cluster) revoked(secret *corev1.Secret) {
	c.t.Helper()
	eventually(c.t, "the previous token is rejected", func(context.Context) error {
		if user := c.accepts(secret.Data[v1beta1.SecretTokenKey]); user != "" {
			return fmt.Errorf("the token is accepted for user %s", user)
		}
		return nil
	})
}

// tokenClaims are claims of a token.
type tokenClaims struct {
	Subject    string   `json:"sub"`
	Audiences  []string `json:"aud"`
	Issued     int64    `json:"iat"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		ServiceAccount struct {
			UID types.UID `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

func (c *cluster) claims(secret *corev1.Secret) tokenClaims {
	c.t.Helper()
	var claims tokenClaims
	parts := strings.Split(string(secret.Data[v1beta1.SecretTokenKey]), ".")
	if len(parts) != 3 {
		c.t.Fatalf("token = %q, want 3 parts", secret.Data[v1beta1.SecretTokenKey])
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return claims
}

// counter counts the requests of the agent to one cluster, by kind.
type counter struct{ tokens, reviews, reads, writes atomic.Int32 }

func (n *counter) see(request *http.Request) {
	switch path := request.URL.Path; {
	case request.URL.Query().Get("watch") != "" || strings.Contains(path, "/customresourcedefinitions"):
	case strings.HasSuffix(path, "/token"):
		n.tokens.Add(1)
	case strings.HasSuffix(path, "/tokenreviews"):
		n.reviews.Add(1)
	case request.Method == http.MethodGet:
		n.reads.Add(1)
	default:
		n.writes.Add(1)
	}
}

// count returns counters of the agent's requests to both clusters from now on.
func (c *cluster) count() (managed, hub *counter) {
	managed, hub = &counter{}, &counter{}
	c.onRequest(func(request *http.Request) error { managed.see(request); return nil })
	c.onHubRequest(func(request *http.Request) error { hub.see(request); return nil })
	return managed, hub
}

// onHubRequest is like onRequest, for requests to the hub.
func (c *cluster) onHubRequest(hook func(*http.Request) error) {
	if hook == nil {
		c.hubExchanges.Store(nil)
		return
	}
	each := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if err := hook(request); err != nil {
			return nil, err
		}
		return send()
	})
	c.hubExchanges.Store(&each)
}
