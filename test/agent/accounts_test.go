package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func testReported(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	account, secret := c.reported(name, nil)
	if secret.Type != corev1.SecretTypeOpaque || secret.Labels[v1beta1.ManagedServiceAccountLabel] != "true" || len(secret.Data) != 2 {
		t.Errorf("Secret has type %s, labels %v and %d keys, want type %s, label %s=true and 2 keys", secret.Type, secret.Labels, len(secret.Data), corev1.SecretTypeOpaque, v1beta1.ManagedServiceAccountLabel)
	}
	want := []metav1.OwnerReference{{APIVersion: "authentication.open-cluster-management.io/v1beta1", Kind: "ManagedServiceAccount", Name: name, UID: account.UID}}
	if fmt.Sprint(secret.OwnerReferences) != fmt.Sprint(want) {
		t.Errorf("ownerReferences = %v, want %v", secret.OwnerReferences, want)
	}
	if !bytes.Equal(secret.Data[v1beta1.SecretCAKey], c.account.CAData) {
		t.Errorf("ca.crt = %s, want %s", secret.Data[v1beta1.SecretCAKey], c.account.CAData)
	}
	if got, want := secret.Annotations[serviceaccount.RequestAnnotation], `{"validity":"1h0m0s"}`; got != want {
		t.Errorf("annotation %s = %s, want %s", serviceaccount.RequestAnnotation, got, want)
	}
	if got, want := c.accepts(secret.Data[v1beta1.SecretTokenKey]), "system:serviceaccount:"+accountNamespace+":"+name; got != want {
		t.Errorf("user of the token = %q, want %q", got, want)
	}
	claims, held := c.claims(secret), c.serviceAccount(name)
	if claims.Expires-claims.Issued != 3600 || account.Status.ExpirationTimestamp.Unix() != claims.Expires || account.Status.TokenSecretRef.LastRefreshTimestamp.Unix() != claims.Issued {
		t.Errorf("claims = %+v, status = %+v, want a lifetime of 3600 s and the times of the claims", claims, account.Status)
	}
	if held.Labels[v1beta1.ManagedServiceAccountLabel] != c.identity() || !strings.Contains(held.Annotations[serviceaccount.SourceAnnotation], c.name) {
		t.Errorf("ServiceAccount has labels %v and annotations %v, want label %s and source %s", held.Labels, held.Annotations, c.identity(), c.name)
	}
	if ref := account.Status.ServiceAccountRef; ref == nil || *ref != (v1beta1.ServiceAccountReference{Namespace: accountNamespace, Name: name, UID: held.UID}) {
		t.Errorf("serviceAccountRef = %+v, want %s/%s with UID %s", ref, accountNamespace, name, held.UID)
	}

	if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.noServiceAccount(name)
}

// testFourRequests checks that a new ManagedServiceAccount causes four requests: to create the
// ServiceAccount, the token and the Secret, and to update the status.
func testFourRequests(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	c.reported(c.createMSA("-warm", nil), nil)
	managed, hub := c.count()
	c.reported(c.createMSA("", nil), nil)
	if managed.writes.Load() != 1 || managed.tokens.Load() != 1 || managed.reads.Load()+managed.reviews.Load() != 0 {
		t.Errorf("managed cluster: writes = %d, token requests = %d, reads = %d, TokenReviews = %d, want 1, 1, 0, 0", managed.writes.Load(), managed.tokens.Load(), managed.reads.Load(), managed.reviews.Load())
	}
	if hub.writes.Load() != 2 || hub.reads.Load() != 0 {
		t.Errorf("hub: writes = %d, reads = %d, want 2, 0", hub.writes.Load(), hub.reads.Load())
	}
}

func testServiceAccountDeleted(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	before, secret := c.reported(name, nil)
	if err := c.serviceAccounts().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, again := c.reported(name, secret)
	held := c.serviceAccount(name)
	if held.UID == before.Status.ServiceAccountRef.UID || c.claims(again).Kubernetes.ServiceAccount.UID != held.UID {
		t.Errorf("UID of the ServiceAccount = %s, UID in the token = %s, want the same and not %s", held.UID, c.claims(again).Kubernetes.ServiceAccount.UID, before.Status.ServiceAccountRef.UID)
	}
}

func testLabelRestored(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	uid := c.serviceAccount(name).UID
	for _, label := range []string{"null", `"somebody-else"`} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1beta1.ManagedServiceAccountLabel, label)
		if _, err := c.serviceAccounts().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the label is restored", func(context.Context) error {
			held := c.serviceAccount(name)
			if held.UID != uid || held.Labels[v1beta1.ManagedServiceAccountLabel] != c.identity() {
				return fmt.Errorf("UID = %s, labels = %v, want UID %s and label %s", held.UID, held.Labels, uid, c.identity())
			}
			return nil
		})
	}
	if _, again := c.reported(name, nil); again.ResourceVersion != secret.ResourceVersion {
		t.Errorf("resourceVersion of the Secret = %s, want %s", again.ResourceVersion, secret.ResourceVersion)
	}
}

func testSecretDeleted(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.nudge(name, v1beta1.ReasonSecretMissing)
	_, again := c.reported(name, secret)
	if c.accepts(again.Data[v1beta1.SecretTokenKey]) == "" {
		t.Error("the token in the new Secret is rejected, want it accepted")
	}
}

// testSecretRepaired checks that the agent restores its fields of a Secret without another token
// request, and keeps the labels, annotations and owners of other clients.
func testSecretRepaired(t *testing.T, c *cluster) {
	// These are permissions of upstream OCM agents. With the permissions that the server grants, the
	// agent could not read the Secret without its label and owner.
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "update"}})
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	other := c.createConfigMap("other-owner", "x")
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name, UID: other.UID}
	managed, _ := c.count()
	for what, change := range map[string]func(*corev1.Secret){
		"ca.crt":    func(s *corev1.Secret) { s.Data[v1beta1.SecretCAKey] = []byte("drift") },
		"label":     func(s *corev1.Secret) { delete(s.Labels, v1beta1.ManagedServiceAccountLabel) },
		"owners":    func(s *corev1.Secret) { s.OwnerReferences = nil },
		"more data": func(s *corev1.Secret) { s.Data["more"] = []byte("data") },
		"controller": func(s *corev1.Secret) {
			s.OwnerReferences[0].Kind = "ManagedServiceAccount"
			s.OwnerReferences[0].Controller = new(bool)
		},
	} {
		changed := c.changeSecret(name, func(s *corev1.Secret) {
			change(s)
			s.Labels["theirs"], s.Annotations["theirs"] = "yes", "yes"
			s.OwnerReferences = append(slices.DeleteFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == other.UID }), foreign)
		})
		c.nudge(name, v1beta1.ReasonSecretChanged)
		_, repaired := c.reported(name, changed)
		if !bytes.Equal(repaired.Data[v1beta1.SecretTokenKey], secret.Data[v1beta1.SecretTokenKey]) {
			t.Fatalf("%s: the token has changed, want the previous token", what)
		}
		owners := fmt.Sprint(repaired.OwnerReferences)
		if len(repaired.Data) != 2 || !bytes.Equal(repaired.Data[v1beta1.SecretCAKey], secret.Data[v1beta1.SecretCAKey]) ||
			repaired.Labels[v1beta1.ManagedServiceAccountLabel] != "true" || !strings.Contains(owners, fmt.Sprint(secret.OwnerReferences[0])) {
			t.Fatalf("%s: Secret has %d keys, labels %v and owners %s, want the agent's fields restored", what, len(repaired.Data), repaired.Labels, owners)
		}
		if repaired.Labels["theirs"] != "yes" || repaired.Annotations["theirs"] != "yes" || !strings.Contains(owners, string(other.UID)) {
			t.Fatalf("%s: Secret has labels %v, annotations %v and owners %s, want theirs=yes and owner %s kept", what, repaired.Labels, repaired.Annotations, owners, other.UID)
		}
	}
	if n := managed.tokens.Load(); n != 0 {
		t.Errorf("token requests = %d, want 0", n)
	}
}

// testSecretWithoutMarks checks a Secret that lost its owner, so that the agent is no longer allowed to
// read it. The ManagedServiceAccount reports a conflict until the Secret is deleted.
func testSecretWithoutMarks(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	c.reported(name, nil)
	c.changeSecret(name, func(s *corev1.Secret) { s.OwnerReferences = nil })
	// While the agent has the permission, it could restore the owner.
	eventually(t, "the agent has no permission to read Secrets", func(ctx context.Context) error {
		role, err := c.kube.RbacV1().Roles(c.name).Get(ctx, secretsRole, metav1.GetOptions{})
		if err == nil && len(role.Rules) > 1 {
			err = fmt.Errorf("rules = %v, want only create", role.Rules)
		}
		return err
	})
	c.nudge(name, v1beta1.ReasonSecretChanged)
	stuck := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonSecretConflict)
	// A change of the spec causes another pass. The agent uses its cached state.
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) {
		account.Spec.TTLSecondsAfterCreation = new(int32(100000))
	})
	still := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonSecretConflict)
	if still.Generation == stuck.Generation {
		t.Errorf("generation after a change of the spec = %d, want another", still.Generation)
	}
	if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.reported(name, nil)
}

// testBadTokens checks that the agent replaces a token that is not for its ServiceAccount.
func testBadTokens(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name, other := c.createMSA("", nil), c.createMSA("-other", nil)
	_, foreign := c.reported(other, nil)
	c.reported(name, nil)
	for what, token := range map[string][]byte{
		"malformed": []byte("not.a.token"), "empty": nil, "of another account": foreign.Data[v1beta1.SecretTokenKey],
	} {
		changed := c.changeSecret(name, func(s *corev1.Secret) { s.Data[v1beta1.SecretTokenKey] = token })
		c.nudge(name, v1beta1.ReasonSecretChanged)
		_, again := c.reported(name, changed)
		if got, want := c.claims(again).Subject, "system:serviceaccount:"+accountNamespace+":"+name; got != want {
			t.Errorf("%s: subject of the token = %s, want %s", what, got, want)
		}
	}
	if _, still := c.reported(other, nil); still.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("resourceVersion of the Secret of %s = %s, want %s", other, still.ResourceVersion, foreign.ResourceVersion)
	}
}

func testCARollover(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	var ca atomic.Pointer[[]byte]
	before, after := []byte("first"), []byte("second")
	ca.Store(&before)
	c.ca = func() ([]byte, error) { return *ca.Load(), nil }
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	if got := secret.Data[v1beta1.SecretCAKey]; !bytes.Equal(got, before) {
		t.Fatalf("ca.crt = %s, want %s", got, before)
	}
	ca.Store(&after)
	clock.Step(11 * time.Second)
	_, again := c.reported(name, secret)
	if got := again.Data[v1beta1.SecretCAKey]; !bytes.Equal(got, after) {
		t.Errorf("ca.crt = %s, want %s", got, after)
	}
	if !bytes.Equal(again.Data[v1beta1.SecretTokenKey], secret.Data[v1beta1.SecretTokenKey]) {
		t.Error("the token has changed with the CA, want the previous token")
	}
}

// testSpecChanged checks that a change of the validity causes a new token. A change of other fields, or
// of the notation of the validity, does not.
func testSpecChanged(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Spec.Rotation.Validity = "2h" })
	_, longer := c.reported(name, secret)
	if claims := c.claims(longer); claims.Expires-claims.Issued != 7200 {
		t.Errorf("lifetime of the token = %d s, want 7200 s", claims.Expires-claims.Issued)
	}
	ttl, off := int32(100000), false
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) {
		account.Spec.TTLSecondsAfterCreation, account.Spec.Rotation.Validity, account.Spec.Rotation.Enabled = &ttl, "120m", &off
	})
	c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReported)
	if _, same := c.reported(name, nil); same.ResourceVersion != longer.ResourceVersion {
		t.Errorf("resourceVersion of the Secret = %s, want %s", same.ResourceVersion, longer.ResourceVersion)
	}
}

func testAudiences(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", func(spec *v1beta1.ManagedServiceAccountSpec) { spec.Audiences = []string{"vault", "backup"} })
	_, secret := c.reported(name, nil)
	if c.accepts(secret.Data[v1beta1.SecretTokenKey]) != "" || c.accepts(secret.Data[v1beta1.SecretTokenKey], "vault") == "" {
		t.Errorf("audiences of the token = %v, want only vault and backup", c.claims(secret).Audiences)
	}
	// The order of the audiences does not matter.
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Spec.Audiences = []string{"backup", "vault"} })
	if _, same := c.reported(name, nil); same.ResourceVersion != secret.ResourceVersion {
		t.Errorf("resourceVersion of the Secret after a change of the order = %s, want %s", same.ResourceVersion, secret.ResourceVersion)
	}
	// The agent's TokenReview names the audiences of the token, so the token is accepted.
	c.nudge(name, v1beta1.ReasonSecretChanged)
	if _, same := c.reported(name, nil); same.ResourceVersion != secret.ResourceVersion {
		t.Errorf("resourceVersion of the Secret after a TokenReview = %s, want %s", same.ResourceVersion, secret.ResourceVersion)
	}
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Spec.Audiences = nil })
	_, again := c.reported(name, secret)
	if c.accepts(again.Data[v1beta1.SecretTokenKey]) == "" {
		t.Errorf("audiences of the token = %v, want the default audiences", c.claims(again).Audiences)
	}
}

// testInvalidSpec checks ManagedServiceAccounts with an invalid spec, which releases without
// validation have stored. They do not block others, and they have a ServiceAccount.
func testInvalidSpec(t *testing.T, c *cluster) {
	c.grantSecrets()
	var bad []string
	for i, validity := range []string{"abc", "1m", "-1h"} {
		bad = append(bad, c.createMSA(fmt.Sprintf("-bad-%d", i), func(spec *v1beta1.ManagedServiceAccountSpec) { spec.Rotation.Validity = validity }))
	}
	zero := c.createMSA("-zero", func(spec *v1beta1.ManagedServiceAccountSpec) { spec.Rotation.Validity = "0s" })
	c.run()
	c.reported(c.createMSA("-good", nil), nil)
	if _, secret := c.reported(zero, nil); c.claims(secret).Expires-c.claims(secret).Issued != int64(v1beta1.DefaultValidity.Seconds()) {
		t.Errorf("claims for validity 0s = %+v, want a lifetime of %s", c.claims(secret), v1beta1.DefaultValidity)
	}
	for _, name := range bad {
		account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonInvalidSpec)
		if message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionTokenReported).Message; !strings.Contains(message, "spec.rotation.validity") {
			t.Errorf("%s: message = %q, want a mention of spec.rotation.validity", name, message)
		}
		c.msaIs(name, v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountPresent)
		c.serviceAccount(name)
		if account.Status.TokenSecretRef != nil {
			t.Errorf("%s: tokenSecretRef = %+v, want nil", name, account.Status.TokenSecretRef)
		}
	}
	c.changeMSA(bad[0], func(account *v1beta1.ManagedServiceAccount) { account.Spec.Rotation.Validity = "1h" })
	_, secret := c.reported(bad[0], nil)
	// If the spec becomes invalid, the reported token stays while it is valid.
	c.changeMSA(bad[0], func(account *v1beta1.ManagedServiceAccount) { account.Spec.Rotation.Validity = "later" })
	account := c.msaIs(bad[0], v1beta1.ConditionTokenReported, v1beta1.ReasonInvalidSpec)
	if ref := account.Status.TokenSecretRef; ref == nil || ref.ResourceVersion != secret.ResourceVersion {
		t.Errorf("tokenSecretRef = %+v, want resourceVersion %s", ref, secret.ResourceVersion)
	}
}

func testLongName(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	c.reported(c.createMSA(strings.Repeat("-x", (253-len(c.name))/2), nil), nil)
}

// testIdleAccounts checks that ManagedServiceAccounts without changes cause no request, and no write
// after a restart.
func testIdleAccounts(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	var names []string
	for i := range 20 {
		names = append(names, c.createMSA(fmt.Sprintf("-%d", i), nil))
	}
	for _, name := range names {
		c.reported(name, nil)
	}
	managed, hub := c.count()
	for _, name := range names {
		if _, err := c.msas().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.reported(c.createMSA("-marker", nil), nil)
	if managed.writes.Load() != 1 || managed.tokens.Load() != 1 || managed.reviews.Load() != 0 || managed.reads.Load() != 0 || hub.writes.Load() != 2 || hub.reads.Load() != 0 {
		t.Errorf("managed cluster: writes = %d, token requests = %d, TokenReviews = %d, reads = %d, hub: writes = %d, reads = %d, want 1, 1, 0, 0, 2, 0 for the marker only", managed.writes.Load(), managed.tokens.Load(), managed.reviews.Load(), managed.reads.Load(), hub.writes.Load(), hub.reads.Load())
	}
	c.kill()
	managed, hub = c.count()
	c.run()
	eventually(t, "every token is reviewed", func(context.Context) error {
		if n := managed.reviews.Load(); n < 21 {
			return fmt.Errorf("TokenReviews = %d, want 21", n)
		}
		return nil
	})
	c.reported(c.createMSA("-marker-2", nil), nil)
	if managed.writes.Load() != 1 || managed.tokens.Load() != 1 || managed.reviews.Load() != 21 || hub.writes.Load() != 2 {
		t.Errorf("after the restart: writes = %d, token requests = %d, TokenReviews = %d, writes on the hub = %d, want 1, 1, 21, 2", managed.writes.Load(), managed.tokens.Load(), managed.reviews.Load(), hub.writes.Load())
	}
}

// testNotServed checks that the agent becomes ready with a hub that does not serve
// ManagedServiceAccounts, and handles them as soon as the hub serves them.
func testNotServed(t *testing.T, c *cluster) {
	c.grantSecrets()
	var refused atomic.Int32
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasPrefix(request.URL.Path, "/apis/authentication.open-cluster-management.io/") {
			refused.Add(1)
			return answer(request, http.StatusNotFound, "text/plain", "404 page not found\n"), nil
		}
		return send()
	})
	c.hubExchanges.Store(&hook)
	c.run()
	eventually(t, "the agent is ready without ManagedServiceAccounts", func(context.Context) error {
		if refused.Load() == 0 {
			return errors.New("the agent has sent no request for ManagedServiceAccounts")
		}
		return c.agent.Ready()
	})
	c.hubExchanges.Store(nil)
	c.reported(c.createMSA("", nil), nil)
}

// testAccountsDisabled checks that an agent without ServiceAccounts sends no requests for
// ManagedServiceAccounts, and keeps the ServiceAccounts that it created before.
func testAccountsDisabled(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	c.reported(name, nil)
	c.kill()

	c.noAccounts = true
	var asked atomic.Int32
	c.onHubRequest(func(request *http.Request) error {
		if strings.Contains(request.URL.Path, "/managedserviceaccounts") || strings.Contains(request.URL.Path, "/secrets") {
			asked.Add(1)
		}
		return nil
	})
	c.run()
	later := c.createMSA("-later", nil)
	eventually(t, "the agent is ready without ManagedServiceAccounts", func(context.Context) error { return c.agent.Ready() })
	// The agent may not create ConfigMaps, and reports it.
	c.condition(c.create("", nil, configMap("marker", "one")), workv1.WorkApplied, metav1.ConditionFalse)
	if n := asked.Load(); n > 0 {
		t.Errorf("requests for ManagedServiceAccounts and Secrets = %d, want 0", n)
	}
	c.serviceAccount(name)
	c.kill()

	c.noAccounts = false
	c.onHubRequest(nil)
	c.run()
	c.reported(later, nil)
}
