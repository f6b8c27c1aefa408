package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

func (c *cluster) createServiceAccount(name string, labels map[string]string) *corev1.ServiceAccount {
	c.t.Helper()
	made, err := c.serviceAccounts().Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = c.serviceAccounts().Delete(context.WithoutCancel(c.t.Context()), name, metav1.DeleteOptions{})
	})
	return made
}

// conflicted waits until a ManagedServiceAccount reports that its ServiceAccount has another owner,
// and checks that it has no token.
func (c *cluster) conflicted(name string, mentions ...string) {
	c.t.Helper()
	c.msaIs(name, v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountConflict)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonServiceAccountConflict)
	message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionAllServiceAccountPresent).Message
	for _, part := range append(mentions, name, c.identity()) {
		if !strings.Contains(message, part) {
			c.t.Errorf("message = %q, want a mention of %s", message, part)
		}
	}
	if account.Status.ServiceAccountRef != nil || account.Status.TokenSecretRef != nil || meta.IsStatusConditionTrue(account.Status.Conditions, v1beta1.ConditionSecretCreated) {
		c.t.Errorf("status = %+v, want no serviceAccountRef, no tokenSecretRef and SecretCreated not True", account.Status)
	}
	if _, err := c.secret(name); err == nil {
		c.t.Errorf("Get(Secret %s) = nil, want an error", name)
	}
}

// testNotAdopted checks that the agent neither changes nor requests a token for a ServiceAccount of
// another owner.
func testNotAdopted(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	before := c.createServiceAccount(c.name, nil)
	c.run()
	c.createMSA("", nil)
	c.conflicted(c.name, accountNamespace)
	managed, hub := c.count()
	eventually(t, "the agent has read from the managed cluster 3 times", func(context.Context) error {
		clock.Step(time.Second)
		if n := managed.reads.Load(); n < 3 {
			return fmt.Errorf("reads = %d", n)
		}
		return nil
	})
	if managed.writes.Load()+managed.tokens.Load()+hub.writes.Load() != 0 {
		t.Errorf("writes = %d, token requests = %d, writes on the hub = %d, want 0", managed.writes.Load(), managed.tokens.Load(), hub.writes.Load())
	}
	if after := c.serviceAccount(c.name); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("ServiceAccount = %+v, want resourceVersion %s", after, before.ResourceVersion)
	}
	if err := c.serviceAccounts().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(31 * time.Second)
	c.reported(c.name, nil)
}

// testAgentsOwn checks that a ManagedServiceAccount with the name of the agent's own ServiceAccount
// does not get its token, even in the agent's namespace. If the agent has no permission in the
// namespace, the ManagedServiceAccount reports that.
func testAgentsOwn(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.accountNamespace = "open-cluster-management-agent"
	c.run()
	if _, err := c.msas().Create(t.Context(), &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := c.msaIs("agent", v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountFailed)
	if message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionAllServiceAccountPresent).Message; !strings.Contains(message, "forbidden") {
		t.Errorf("message = %q, want a mention of forbidden", message)
	}
	c.grantAccounts(c.accountNamespace)
	c.conflicted("agent", c.accountNamespace)
	if held := c.serviceAccount("agent"); len(held.Labels) != 0 {
		t.Errorf("labels of ServiceAccount agent = %v, want none", held.Labels)
	}
}

// grantAccounts allows the agent to manage ServiceAccounts in another namespace.
func (c *cluster) grantAccounts(namespace string) {
	c.t.Helper()
	const role = "open-cluster-management:agent:serviceaccounts"
	original, err := c.kube.RbacV1().Roles(accountNamespace).Get(c.t.Context(), role, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.kube.RbacV1().Roles(namespace).Create(c.t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: original.Rules}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.kube.RbacV1().RoleBindings(namespace).Create(c.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "open-cluster-management-agent", Name: "agent"}},
	}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) createSecret(name string, labels map[string]string, kind corev1.SecretType) *corev1.Secret {
	c.t.Helper()
	made, err := c.kube.CoreV1().Secrets(c.name).Create(c.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Type: kind, StringData: map[string]string{"password": "secret"},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// testForeignSecret checks that the agent does not change a Secret of another owner, which it is not
// allowed to read, and requests at most one token for it.
func testForeignSecret(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	before := c.createSecret(c.name, nil, corev1.SecretTypeOpaque)
	managed, hub := c.count()
	c.run()
	c.createMSA("", nil)
	account := c.msaIs(c.name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretConflict)
	if message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionSecretCreated).Message; !strings.Contains(message, c.name+"/"+c.name) {
		t.Errorf("message = %q, want a mention of %s/%s", message, c.name, c.name)
	}
	c.msaIs(c.name, v1beta1.ConditionTokenReported, v1beta1.ReasonSecretConflict)
	reads := hub.reads.Load()
	eventually(t, "the agent has read from the hub 20 times", func(context.Context) error {
		clock.Step(time.Minute)
		if n := hub.reads.Load() - reads; n < 20 {
			return fmt.Errorf("reads = %d", n)
		}
		return nil
	})
	if n := managed.tokens.Load(); n > 1 {
		t.Errorf("token requests = %d, want at most 1", n)
	}
	if after, err := c.secret(c.name); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("Get(Secret) = %+v, %v, want resourceVersion %s", after, err, before.ResourceVersion)
	}
	if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent has created the Secret", func(context.Context) error {
		clock.Step(time.Minute)
		_, err := c.secret(c.name)
		return err
	})
	c.reported(c.name, nil)
}

// testBroadRole checks that an agent with the permissions of upstream OCM agents, which can read all
// Secrets, also reports Secrets of other owners as conflicts and does not change them.
func testBroadRole(t *testing.T, c *cluster) {
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update"}})
	clock := c.ownClock()
	label := map[string]string{v1beta1.ManagedServiceAccountLabel: "true"}
	c.createSecret(c.name+"-labelled", label, corev1.SecretTypeOpaque)
	c.createSecret(c.name+"-typed", label, "example.com/other")
	c.run()
	for _, suffix := range []string{"-labelled", "-typed"} {
		name := c.createMSA(suffix, nil)
		c.msaIs(name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretConflict)
		if secret, err := c.secret(name); err != nil || string(secret.Data["password"]) != "secret" || len(secret.OwnerReferences) != 0 {
			t.Errorf("Get(Secret %s) = %+v, %v, want it unchanged", name, secret, err)
		}
		if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Minute)
		c.reported(name, nil)
	}
}

// testLateGrant checks an agent that stopped after it stored a token. The next agent uses this token
// as soon as the hub allows it to read the Secret, and requests no other.
func testLateGrant(t *testing.T, c *cluster) {
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}})
	var late atomic.Bool
	died := make(chan struct{})
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if late.Load() && request.Method != http.MethodGet {
			return nil, errDead
		}
		response, err := send()
		if err == nil && request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/secrets") && late.CompareAndSwap(false, true) {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			close(died)
			return nil, errDead
		}
		return response, err
	})
	c.hubExchanges.Store(&hook)
	c.run()
	c.createMSA("", nil)
	<-died
	c.kill()
	before, err := c.secret(c.name)
	if err != nil {
		t.Fatal(err)
	}
	managed, hub := c.count()
	c.run()
	eventually(t, "the agent has tried twice to read from the hub", func(context.Context) error {
		if hub.reads.Load() < 2 {
			return errors.New("the agent has sent fewer than 2 reads")
		}
		return nil
	})
	if err := c.limitRole(t.Context(), []string{c.name}); err != nil {
		t.Fatal(err)
	}
	if _, after := c.reported(c.name, nil); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("resourceVersion of the Secret = %s, want %s", after.ResourceVersion, before.ResourceVersion)
	}
	if n := managed.tokens.Load(); n != 0 {
		t.Errorf("token requests after the restart = %d, want 0", n)
	}
}

// testLateRole checks an agent that is not yet allowed to create Secrets, because the hub grants this
// permission after the first ManagedServiceAccount is created. For a short time, the agent retries
// without a report and without another token request.
func testLateRole(t *testing.T, c *cluster) {
	// The clock stands still, so that the agent does not report the failure.
	clock := testingclock.NewFakeClock(time.Now())
	c.clock = clock
	managed, hub := c.count()
	c.run()
	name := c.createMSA("", nil)
	eventually(t, "the agent has tried twice to write to the hub", func(context.Context) error {
		if hub.writes.Load() < 2 {
			return errors.New("the agent has sent fewer than 2 writes")
		}
		return nil
	})
	account, err := c.msas().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionTokenReported) != nil {
		t.Errorf("status = %+v, %v, want no condition TokenReported", account.Status, err)
	}
	c.grantSecrets()
	eventually(t, "Secret "+name+" exists", func(context.Context) error {
		clock.Step(250 * time.Millisecond)
		_, err := c.secret(name)
		return err
	})
	c.reported(name, nil)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("token requests = %d, want 1", n)
	}
}

// testTwoAgents checks that the agents of two hubs that share a namespace do not change each other's
// ServiceAccounts.
func testTwoAgents(t *testing.T, c *cluster) {
	other := c.named(t, c.name+"-b")
	other.verify = time.Hour
	for _, each := range []*cluster{c, other} {
		each.grantSecrets()
		each.run()
	}
	create := func(each *cluster) {
		t.Helper()
		if _, err := each.msas().Create(t.Context(), &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: c.name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(c)
	_, secret := c.reported(c.name, nil)
	create(other)
	other.conflicted(c.name, c.identity())
	// The deletion of the second ManagedServiceAccount must not affect the first.
	if err := other.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.reported(other.createMSA("-marker", nil), nil)
	if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
		t.Fatal("the token of the first ManagedServiceAccount is rejected, want it accepted")
	}
	// After the deletion of the first ManagedServiceAccount, the second gets a ServiceAccount.
	create(other)
	other.conflicted(c.name, c.identity())
	if err := c.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.reported(c.name, nil)
	c.revoked(secret)
	if got := c.serviceAccount(c.name).Labels[v1beta1.ManagedServiceAccountLabel]; got != other.identity() {
		t.Errorf("owner in the label of the ServiceAccount = %s, want %s", got, other.identity())
	}
}

// testHandedOver checks the remedy in the message of the conflict. If the ServiceAccount of another
// agent, here an upstream OCM agent, gets the label of this agent, this agent takes it over.
func testHandedOver(t *testing.T, c *cluster) {
	c.grantSecrets()
	before := c.createServiceAccount(c.name, map[string]string{v1beta1.ManagedServiceAccountLabel: "true"})
	c.run()
	c.createMSA("", nil)
	c.conflicted(c.name, `"true"`)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1beta1.ManagedServiceAccountLabel, c.identity())
	if _, err := c.serviceAccounts().Patch(t.Context(), c.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	account, _ := c.reported(c.name, nil)
	if held := c.serviceAccount(c.name); held.UID != before.UID || held.Annotations[serviceaccount.OwnerUIDAnnotation] != string(account.UID) {
		t.Errorf("metadata of the ServiceAccount = %+v, want UID %s and owner UID %s", held.ObjectMeta, before.UID, account.UID)
	}
	if err := c.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.noServiceAccount(c.name)
}

// testMoved checks that the agent moves the ServiceAccounts if its ServiceAccountNamespace changes.
func testMoved(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	c.kill()
	moved := c.name + "-accounts"
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: moved}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.grantAccounts(moved)
	c.accountNamespace = moved
	c.run()
	account, again := c.reported(name, secret)
	if c.claims(again).Subject != "system:serviceaccount:"+moved+":"+name || account.Status.ServiceAccountRef.Namespace != moved {
		t.Errorf("subject of the token = %s, serviceAccountRef = %+v, want namespace %s in both", c.claims(again).Subject, account.Status.ServiceAccountRef, moved)
	}
	c.accountNamespace = agent.DefaultServiceAccountNamespace
	c.noServiceAccount(name)
}
