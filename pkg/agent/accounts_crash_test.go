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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// accountDiesAt is dieAt for accounts: it counts what is written to both
// clusters for them. After the n-th write neither can be reached any more.
func (c *cluster) accountDiesAt(n int32, arrives bool) func() bool {
	var writes atomic.Int32
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		path := request.URL.Path
		counts := request.Method != http.MethodGet && (strings.Contains(path, "/serviceaccounts") || strings.Contains(path, "/secrets") || strings.Contains(path, "/managedserviceaccounts/"))
		if strings.Contains(request.URL.RawQuery, "watch=") || !counts && writes.Load() < n {
			return send()
		}
		switch before := writes.Load(); {
		case counts && before < n:
			if writes.Add(1) < n {
				return send()
			}
			if arrives {
				if response, err := send(); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
		}
		return nil, errDead
	})
	c.exchanges.Store(&hook)
	c.hubExchanges.Store(&hook)
	return func() bool { return writes.Load() >= n }
}

// testAccountCrash kills the agent at each write in turn, before and after it
// takes effect, and checks that the next agent gets everything in order, with at
// most one more token.
func testAccountCrash(t *testing.T, c *cluster) {
	c.grantSecrets()
	for _, arrives := range []bool{false, true} {
		for n := int32(1); ; n++ {
			died := c.accountDiesAt(n, arrives)
			c.run()
			name := c.createMSA(fmt.Sprintf("-%d-%t", n, arrives), nil)
			finished := false
			eventually(t, "the agent is dead or done", func(ctx context.Context) error {
				if died() {
					return nil
				}
				account, err := c.msas().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if !meta.IsStatusConditionTrue(account.Status.Conditions, v1beta1.ConditionTokenReported) {
					return errors.New("neither")
				}
				finished = !died()
				return nil
			})
			c.kill()
			managed, _ := c.count()
			c.run()
			_, secret := c.reported(name, nil)
			if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
				t.Errorf("write %d: the token is not valid", n)
			}
			if tokens := managed.tokens.Load(); tokens > 1 {
				t.Errorf("write %d: %d more tokens", n, tokens)
			}
			c.kill()
			died = c.accountDiesAt(1, arrives)
			c.run()
			if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the agent has died of the deletion", func(context.Context) error {
				if died() {
					return nil
				}
				return errors.New("it has not")
			})
			c.kill()
			c.count()
			c.run()
			c.noServiceAccount(name)
			c.kill()
			if finished {
				if n != 5 {
					t.Errorf("%d writes, want 4", n-1)
				}
				break
			}
		}
	}
}

// testOrphanedAccount: the ServiceAccount of an account that was deleted while
// the agent was down goes when the hub says so, and not before.
func testOrphanedAccount(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name, kept := c.createMSA("", nil), c.createMSA("-kept", nil)
	_, secret := c.reported(name, nil)
	c.reported(kept, nil)
	c.kill()
	if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	c.onHubRequest(func(request *http.Request) error {
		if strings.Contains(request.URL.Path, "/managedserviceaccounts") {
			refused.Add(1)
			return errDead
		}
		return nil
	})
	c.run()
	eventually(t, "the agent has asked in vain", func(context.Context) error {
		if n := refused.Load(); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
		t.Error("the ServiceAccount is gone")
	}
	c.onHubRequest(nil)
	c.noServiceAccount(name)
	c.reported(kept, nil)
	c.serviceAccount(kept)
}

// testRemade: an account that was deleted and made again while nobody looked is
// another account; the tokens of the former are no longer valid.
func testRemade(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	c.kill()
	if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createMSA("", nil)
	c.run()
	account, again := c.reported(name, secret)
	if again.UID == secret.UID || again.OwnerReferences[0].UID != account.UID {
		t.Errorf("the Secret is that of the former account: %+v", again.ObjectMeta)
	}
	c.revoked(secret)
	if c.accepts(again.Data[v1beta1.SecretTokenKey]) == "" {
		t.Error("the token is not valid")
	}
}

// testDeletingAccount: the access ends when the deletion begins, whatever
// finalizers are there.
func testDeletingAccount(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Finalizers = []string{"example.com/theirs"} })
	_, secret := c.reported(name, nil)
	if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.noServiceAccount(name)
	if after, err := c.secret(name); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("the Secret is another one: %v (%v)", after, err)
	}
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Finalizers = nil })
}

// testReplacedWhileDown: a ServiceAccount that is not the one of the token,
// though it is marked as ours, gets a token of its own.
func testReplacedWhileDown(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.run()
	name := c.createMSA("", nil)
	_, secret := c.reported(name, nil)
	c.kill()
	if err := c.serviceAccounts().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	made := c.createServiceAccount(name, map[string]string{v1beta1.ManagedServiceAccountLabel: c.identity()})
	c.run()
	account, again := c.reported(name, secret)
	if account.Status.ServiceAccountRef.UID != made.UID || c.claims(again).Kubernetes.ServiceAccount.UID != made.UID {
		t.Errorf("ServiceAccount %s, status %+v, token of %s", made.UID, account.Status.ServiceAccountRef, c.claims(again).Kubernetes.ServiceAccount.UID)
	}
}
