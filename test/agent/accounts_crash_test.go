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

// accountDiesAt is like dieAt for ManagedServiceAccounts. It counts the writes for them to both
// clusters. From the n-th write on, all requests to both clusters fail, except watches.
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

// testAccountCrash stops the agent at each write in turn, before and after the write takes effect. It
// checks that the next agent reports a valid token with at most one more token request.
func testAccountCrash(t *testing.T, c *cluster) {
	c.grantSecrets()
	for _, arrives := range []bool{false, true} {
		for n := int32(1); ; n++ {
			died := c.accountDiesAt(n, arrives)
			c.run()
			name := c.createMSA(fmt.Sprintf("-%d-%t", n, arrives), nil)
			finished := false
			eventually(t, "the agent has lost the clusters or reported the token", func(ctx context.Context) error {
				if died() {
					return nil
				}
				account, err := c.msas().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if !meta.IsStatusConditionTrue(account.Status.Conditions, v1beta1.ConditionTokenReported) {
					return errors.New("the token is not reported")
				}
				finished = !died()
				return nil
			})
			c.kill()
			managed, _ := c.count()
			c.run()
			_, secret := c.reported(name, nil)
			if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
				t.Errorf("write %d: the token is rejected, want it accepted", n)
			}
			if tokens := managed.tokens.Load(); tokens > 1 {
				t.Errorf("write %d: token requests after the restart = %d, want at most 1", n, tokens)
			}
			c.kill()
			died = c.accountDiesAt(1, arrives)
			c.run()
			if err := c.msas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the agent has lost the clusters during the deletion", func(context.Context) error {
				if died() {
					return nil
				}
				return errors.New("the agent has sent no write")
			})
			c.kill()
			c.count()
			c.run()
			c.noServiceAccount(name)
			c.kill()
			if finished {
				if n != 5 {
					t.Errorf("writes until the token is reported = %d, want 4", n-1)
				}
				break
			}
		}
	}
}

// testOrphanedAccount checks a ManagedServiceAccount that was deleted while the agent was stopped. The
// agent deletes its ServiceAccount only after it has listed the ManagedServiceAccounts on the hub.
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
	eventually(t, "3 requests for ManagedServiceAccounts have failed", func(context.Context) error {
		if n := refused.Load(); n < 3 {
			return fmt.Errorf("failed requests = %d", n)
		}
		return nil
	})
	if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
		t.Error("the token is rejected while the hub does not respond, want it accepted")
	}
	c.onHubRequest(nil)
	c.noServiceAccount(name)
	c.reported(kept, nil)
	c.serviceAccount(kept)
}

// testRecreated checks a ManagedServiceAccount that was deleted and recreated while the agent was
// stopped. It gets a new Secret, and the token of the previous one is revoked.
func testRecreated(t *testing.T, c *cluster) {
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
		t.Errorf("metadata of the Secret = %+v, want a new Secret with owner UID %s", again.ObjectMeta, account.UID)
	}
	c.revoked(secret)
	if c.accepts(again.Data[v1beta1.SecretTokenKey]) == "" {
		t.Error("the new token is rejected, want it accepted")
	}
}

// testDeletingAccount checks that the agent deletes the ServiceAccount when the deletion of the
// ManagedServiceAccount begins, even if it has finalizers.
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
		t.Errorf("Get(Secret) = %v, %v, want resourceVersion %s", after, err, secret.ResourceVersion)
	}
	c.changeMSA(name, func(account *v1beta1.ManagedServiceAccount) { account.Finalizers = nil })
}

// testReplacedWhileDown checks a ServiceAccount that was recreated with the agent's label while the
// agent was stopped. The agent requests a token for the new ServiceAccount.
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
		t.Errorf("serviceAccountRef = %+v, UID in the token = %s, want %s in both", account.Status.ServiceAccountRef, c.claims(again).Kubernetes.ServiceAccount.UID, made.UID)
	}
}
