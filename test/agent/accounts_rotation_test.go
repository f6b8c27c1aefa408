package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// ownClock gives the agent a clock that only the test advances.
func (c *cluster) ownClock() *testingclock.FakeClock {
	clock := testingclock.NewFakeClock(time.Now())
	c.clock = clock
	return clock
}

// wait waits until check returns nil. Before each check, it advances the clock of the test a little, so that the agent
// retries what failed. A slow machine does not make more time pass for the agent.
func (c *cluster) wait(what string, check func(context.Context) error) {
	c.t.Helper()
	eventually(c.t, what, func(ctx context.Context) error {
		if clock, ok := c.clock.(*testingclock.FakeClock); ok {
			clock.Step(50 * time.Millisecond)
		}
		return check(ctx)
	})
}

// answer returns a response to a request that is not sent.
func answer(request *http.Request, code int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func tenMinutes(spec *v1beta1.ManagedServiceAccountSpec) { spec.Rotation.Validity = "10m" }

// testRotation checks that the agent replaces each token once, at 80 % of its lifetime or up to 5 %
// earlier.
func testRotation(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.verify = time.Minute
	clock := c.ownClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	account, secret := c.reported(name, nil)
	managed, hub := c.count()
	for i := range 3 {
		reads := hub.reads.Load()
		clock.Step(7*time.Minute + 20*time.Second)
		eventually(t, "the agent has verified the token", func(context.Context) error {
			if hub.reads.Load() == reads {
				return errors.New("the agent has not read the Secret")
			}
			return nil
		})
		if n := managed.tokens.Load(); int(n) != i {
			t.Fatalf("token requests after %d rotations and 440 s = %d, want %d", i, n, i)
		}
		clock.Step(42 * time.Second)
		previous := account
		account, secret = c.reported(name, secret)
		if n := managed.tokens.Load(); int(n) != i+1 {
			t.Fatalf("token requests after %d rotations = %d, want %d", i+1, n, i+1)
		}
		if account.Status.TokenSecretRef.LastRefreshTimestamp.Before(&previous.Status.TokenSecretRef.LastRefreshTimestamp) {
			t.Errorf("lastRefreshTimestamp = %s, want %s or later", account.Status.TokenSecretRef.LastRefreshTimestamp, previous.Status.TokenSecretRef.LastRefreshTimestamp)
		}
		if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
			t.Fatal("the new token is rejected, want it accepted")
		}
	}
}

// testOutage checks that the agent requests no token while the hub does not respond, and one token
// after the outage.
func testOutage(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	_, secret := c.reported(name, nil)
	managed, _ := c.count()
	var refused atomic.Int32
	c.onHubRequest(func(*http.Request) error {
		refused.Add(1)
		return errDead
	})
	eventually(t, "15 requests to the hub have failed", func(context.Context) error {
		clock.Step(time.Minute)
		if n := refused.Load(); n < 15 {
			return fmt.Errorf("failed requests = %d", n)
		}
		return nil
	})
	if n := managed.tokens.Load(); n != 0 {
		t.Errorf("token requests during the outage = %d, want 0", n)
	}
	c.onHubRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, secret)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("token requests after the outage = %d, want 1", n)
	}
}

// testTokenReused checks that the agent requests no other token if it could not store the first one.
func testTokenReused(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	c.run()
	managed, _ := c.count()
	var refused atomic.Int32
	c.onHubRequest(func(request *http.Request) error {
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/secrets") && request.URL.Query().Get("dryRun") == "" {
			refused.Add(1)
			return errDead
		}
		return nil
	})
	name := c.createMSA("", nil)
	eventually(t, "5 requests to create the Secret have failed", func(context.Context) error {
		clock.Step(time.Second)
		if n := refused.Load(); n < 5 {
			return fmt.Errorf("failed requests = %d", n)
		}
		return nil
	})
	c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	c.onHubRequest(nil)
	clock.Step(2 * time.Minute)
	c.reported(name, nil)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("token requests = %d, want 1", n)
	}
}

// failTokens makes every token request fail, and returns a counter of them.
func (c *cluster) failTokens() *atomic.Int32 {
	var failed atomic.Int32
	c.onRequest(func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/token") {
			failed.Add(1)
			return errDead
		}
		return nil
	})
	return &failed
}

// unchanged waits until more token requests have failed, and checks that this does not change the
// ManagedServiceAccount.
func (c *cluster) unchanged(clock *testingclock.FakeClock, name string, failed *atomic.Int32) {
	c.t.Helper()
	before, err := c.msas().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	first := failed.Load()
	eventually(c.t, "4 more token requests have failed", func(context.Context) error {
		clock.Step(time.Second)
		if n := failed.Load() - first; n < 4 {
			return fmt.Errorf("failed token requests = %d", n)
		}
		return nil
	})
	after, err := c.msas().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		c.t.Errorf("resourceVersion = %s with status %+v, want %s with status %+v", after.ResourceVersion, after.Status, before.ResourceVersion, before.Status)
	}
}

func testMintFailure(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	failed := c.failTokens()
	c.run()
	name := c.createMSA("", nil)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	c.msaIs(name, v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountPresent)
	if account.Status.TokenSecretRef != nil {
		t.Errorf("tokenSecretRef = %+v, want nil", account.Status.TokenSecretRef)
	}
	c.unchanged(clock, name, failed)
	c.onRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, nil)
}

// testExpired checks that the agent reports a token that cannot be replaced until it expires.
func testExpired(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	_, secret := c.reported(name, nil)
	failed := c.failTokens()
	clock.Step(8*time.Minute + 5*time.Second)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	if account.Status.TokenSecretRef == nil || account.Status.ExpirationTimestamp == nil {
		t.Errorf("status = %+v, want tokenSecretRef and expirationTimestamp of the valid token", account.Status)
	}
	c.msaIs(name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretCreated)
	clock.Step(2 * time.Minute)
	account = c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenExpired)
	if account.Status.TokenSecretRef != nil || account.Status.ExpirationTimestamp != nil {
		t.Errorf("status = %+v, want no tokenSecretRef and no expirationTimestamp of the expired token", account.Status)
	}
	c.unchanged(clock, name, failed)
	c.onRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, secret)
}

// testRejected checks that the agent replaces a well-formed token if the managed cluster rejects it,
// but not if the TokenReview fails.
func testRejected(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.ownClock()
	c.verify = time.Minute
	c.run()
	name := c.createMSA("", nil)
	account, secret := c.reported(name, nil)
	var failed, rejected, tokens atomic.Int32
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/token") {
			tokens.Add(1)
		}
		if !strings.HasSuffix(request.URL.Path, "/tokenreviews") {
			return send()
		}
		if failed.Add(1) <= 3 {
			return nil, errDead
		}
		if rejected.Add(1) > 1 {
			return send()
		}
		return answer(request, http.StatusCreated, "application/json", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":false}}`), nil
	})
	eventually(t, "3 TokenReviews have failed", func(context.Context) error {
		clock.Step(time.Second)
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("failed TokenReviews = %d", n)
		}
		return nil
	})
	if still, err := c.msas().Get(t.Context(), name, metav1.GetOptions{}); err != nil || tokens.Load() == 0 && still.ResourceVersion != account.ResourceVersion {
		t.Errorf("status after failed TokenReviews = %+v, %v, want it unchanged", still.Status, err)
	}
	clock.Step(10 * time.Second)
	_, again := c.reported(name, secret)
	if bytes.Equal(again.Data[v1beta1.SecretTokenKey], secret.Data[v1beta1.SecretTokenKey]) || tokens.Load() != 1 {
		t.Errorf("token requests = %d, want 1 and another token in the Secret", tokens.Load())
	}
}
