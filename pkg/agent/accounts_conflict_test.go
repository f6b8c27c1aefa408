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

// conflicted waits until an account reports that its ServiceAccount is somebody
// else's, and checks that it has got no token of it.
func (c *cluster) conflicted(name string, mentions ...string) {
	c.t.Helper()
	c.msaIs(name, v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountConflict)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonServiceAccountConflict)
	message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionAllServiceAccountPresent).Message
	for _, part := range append(mentions, name, c.identity()) {
		if !strings.Contains(message, part) {
			c.t.Errorf("%q does not mention %s", message, part)
		}
	}
	if account.Status.ServiceAccountRef != nil || account.Status.TokenSecretRef != nil || meta.IsStatusConditionTrue(account.Status.Conditions, v1beta1.ConditionSecretCreated) {
		c.t.Errorf("status %+v", account.Status)
	}
	if _, err := c.secret(name); err == nil {
		c.t.Error("there is a Secret")
	}
}

// testNotAdopted: a ServiceAccount of somebody else is not touched, and no token
// of it leaves the cluster.
func testNotAdopted(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
	before := c.createServiceAccount(c.name, nil)
	c.run()
	c.createMSA("", nil)
	c.conflicted(c.name, accountNamespace)
	managed, hub := c.count()
	eventually(t, "the agent looks again", func(context.Context) error {
		clock.Step(time.Second)
		if n := managed.reads.Load(); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if managed.writes.Load()+managed.tokens.Load()+hub.writes.Load() != 0 {
		t.Errorf("%d writes and %d tokens, %d writes on the hub", managed.writes.Load(), managed.tokens.Load(), hub.writes.Load())
	}
	if after := c.serviceAccount(c.name); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the ServiceAccount was changed: %+v", after)
	}
	if err := c.serviceAccounts().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(31 * time.Second)
	c.reported(c.name, nil)
}

// testAgentsOwn: an account that is named like the agent does not get the
// agent's token, even in the agent's own namespace. Without access to the
// namespace, the account says so.
func testAgentsOwn(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.accountNamespace = "open-cluster-management-agent"
	c.run()
	if _, err := c.msas().Create(t.Context(), &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := c.msaIs("agent", v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountFailed)
	if message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionAllServiceAccountPresent).Message; !strings.Contains(message, "forbidden") {
		t.Error(message)
	}
	c.grantAccounts(c.accountNamespace)
	c.conflicted("agent", c.accountNamespace)
	if held := c.serviceAccount("agent"); len(held.Labels) != 0 {
		t.Errorf("labels are %v", held.Labels)
	}
}

// grantAccounts lets the agent keep ServiceAccounts in another namespace.
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

// testForeignSecret: a Secret of somebody else stays as it is. The agent, which
// may not read it, requests no token for it again and again.
func testForeignSecret(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
	before := c.createSecret(c.name, nil, corev1.SecretTypeOpaque)
	managed, hub := c.count()
	c.run()
	c.createMSA("", nil)
	account := c.msaIs(c.name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretConflict)
	if message := meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionSecretCreated).Message; !strings.Contains(message, c.name+"/"+c.name) {
		t.Error(message)
	}
	c.msaIs(c.name, v1beta1.ConditionTokenReported, v1beta1.ReasonSecretConflict)
	reads := hub.reads.Load()
	eventually(t, "the agent looks again", func(context.Context) error {
		clock.Step(time.Minute)
		if n := hub.reads.Load() - reads; n < 20 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if n := managed.tokens.Load(); n > 1 {
		t.Errorf("%d tokens", n)
	}
	if after, err := c.secret(c.name); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret was changed: %+v (%v)", after, err)
	}
	if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	c.reported(c.name, nil)
}

// testBroadRole: with the permissions that the public agent has, everything is
// the same; and a foreign Secret is named for what it is.
func testBroadRole(t *testing.T, c *cluster) {
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update"}})
	clock := c.runningClock()
	label := map[string]string{v1beta1.ManagedServiceAccountLabel: "true"}
	c.createSecret(c.name+"-labelled", label, corev1.SecretTypeOpaque)
	c.createSecret(c.name+"-typed", label, "example.com/other")
	c.run()
	for _, suffix := range []string{"-labelled", "-typed"} {
		name := c.createMSA(suffix, nil)
		c.msaIs(name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretConflict)
		if secret, err := c.secret(name); err != nil || string(secret.Data["password"]) != "secret" || len(secret.OwnerReferences) != 0 {
			t.Errorf("%s: %+v (%v)", name, secret, err)
		}
		if err := c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Minute)
		c.reported(name, nil)
	}
}

// testLateGrant: an agent that died after it had stored a token finds it again
// as soon as the hub lets it, and requests no other.
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
	eventually(t, "the agent is refused", func(context.Context) error {
		if hub.reads.Load() < 2 {
			return errors.New("it is not")
		}
		return nil
	})
	if err := c.limitRole(t.Context(), []string{c.name}); err != nil {
		t.Fatal(err)
	}
	if _, after := c.reported(c.name, nil); after.ResourceVersion != before.ResourceVersion {
		t.Error("the Secret was written again")
	}
	if n := managed.tokens.Load(); n != 0 {
		t.Errorf("%d tokens", n)
	}
}

// testLateRole: the hub lets an agent create Secrets when it has seen the first
// account. That this takes a moment is not worth a word, or another token.
func testLateRole(t *testing.T, c *cluster) {
	// This clock stands still, so that the agent's patience does not end.
	clock := testingclock.NewFakeClock(time.Now())
	c.clock = clock
	managed, hub := c.count()
	c.run()
	name := c.createMSA("", nil)
	eventually(t, "the agent is refused", func(context.Context) error {
		if hub.writes.Load() < 2 {
			return errors.New("it is not")
		}
		return nil
	})
	account, err := c.msas().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || meta.FindStatusCondition(account.Status.Conditions, v1beta1.ConditionTokenReported) != nil {
		t.Errorf("status %+v (%v)", account.Status, err)
	}
	c.grantSecrets()
	eventually(t, "the Secret is there", func(context.Context) error {
		clock.Step(250 * time.Millisecond)
		_, err := c.secret(name)
		return err
	})
	c.reported(name, nil)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("%d tokens", n)
	}
}

// testTwoAgents: two hubs that share a namespace do not touch what is the other's.
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
	// The second gives up: nothing of the first's changes.
	if err := other.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.reported(other.createMSA("-marker", nil), nil)
	if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
		t.Fatal("the first's token is revoked")
	}
	// The first gives up: the second gets an account of its own.
	create(other)
	other.conflicted(c.name, c.identity())
	if err := c.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.reported(c.name, nil)
	c.revoked(secret)
	if got := c.serviceAccount(c.name).Labels[v1beta1.ManagedServiceAccountLabel]; got != other.identity() {
		t.Errorf("the owner is %s", got)
	}
}

// testHandedOver: the conflict's own advice works: an account of another agent,
// here the public one, that gets our label is ours, under the same UID.
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
		t.Errorf("ServiceAccount %+v", held.ObjectMeta)
	}
	if err := c.msas().Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.noServiceAccount(c.name)
}

// testMoved: accounts follow the agent to another namespace.
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
		t.Errorf("token of %s, status %+v", c.claims(again).Subject, account.Status.ServiceAccountRef)
	}
	c.accountNamespace = agent.DefaultServiceAccountNamespace
	c.noServiceAccount(name)
}
