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

// runningClock gives the agent a clock that runs, and that the test can put forward.
func (c *cluster) runningClock() *testingclock.FakeClock {
	clock := testingclock.NewFakeClock(time.Now())
	c.clock = clock
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				clock.Step(tick)
			case <-done:
				return
			}
		}
	}()
	c.t.Cleanup(func() { ticker.Stop(); close(done) })
	return clock
}

// answer is a response that no server has given.
func answer(request *http.Request, code int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func tenMinutes(spec *v1beta1.ManagedServiceAccountSpec) { spec.Rotation.Validity = "10m" }

// testRotation: a token is replaced at 80 % of its lifetime, up to 5 % earlier,
// and once each time.
func testRotation(t *testing.T, c *cluster) {
	c.grantSecrets()
	c.verify = time.Minute
	clock := c.runningClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	account, secret := c.reported(name, nil)
	managed, hub := c.count()
	for i := range 3 {
		reads := hub.reads.Load()
		clock.Step(7*time.Minute + 20*time.Second)
		eventually(t, "the token is verified", func(context.Context) error {
			if hub.reads.Load() == reads {
				return errors.New("it is not")
			}
			return nil
		})
		if n := managed.tokens.Load(); int(n) != i {
			t.Fatalf("%d tokens after 440 s", n)
		}
		clock.Step(42 * time.Second)
		previous := account
		account, secret = c.reported(name, secret)
		if n := managed.tokens.Load(); int(n) != i+1 {
			t.Fatalf("%d tokens after %d rotations", n, i+1)
		}
		if account.Status.TokenSecretRef.LastRefreshTimestamp.Before(&previous.Status.TokenSecretRef.LastRefreshTimestamp) {
			t.Errorf("refreshed at %s, before at %s", account.Status.TokenSecretRef.LastRefreshTimestamp, previous.Status.TokenSecretRef.LastRefreshTimestamp)
		}
		if c.accepts(secret.Data[v1beta1.SecretTokenKey]) == "" {
			t.Fatal("the token is not valid")
		}
	}
}

// testOutage: while the hub does not answer, no token is requested, however long
// it takes; afterwards one is.
func testOutage(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	_, secret := c.reported(name, nil)
	managed, _ := c.count()
	var refused atomic.Int32
	c.onHubRequest(func(*http.Request) error {
		refused.Add(1)
		return errDead
	})
	eventually(t, "the agent has tried again and again", func(context.Context) error {
		clock.Step(time.Minute)
		if n := refused.Load(); n < 15 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if n := managed.tokens.Load(); n != 0 {
		t.Errorf("%d tokens", n)
	}
	c.onHubRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, secret)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("%d tokens afterwards", n)
	}
}

// testTokenReused: a token that could not be stored is not requested again.
func testTokenReused(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
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
	eventually(t, "the agent has tried again and again", func(context.Context) error {
		clock.Step(time.Second)
		if n := refused.Load(); n < 5 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	c.onHubRequest(nil)
	clock.Step(2 * time.Minute)
	c.reported(name, nil)
	if n := managed.tokens.Load(); n != 1 {
		t.Errorf("%d tokens", n)
	}
}

// failTokens lets every token request fail, and counts them.
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

// unchanged lets the agent fail a few times more and checks that this does not
// change the account.
func (c *cluster) unchanged(clock *testingclock.FakeClock, name string, failed *atomic.Int32) {
	c.t.Helper()
	before, err := c.msas().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	first := failed.Load()
	eventually(c.t, "the agent has tried again", func(context.Context) error {
		clock.Step(time.Second)
		if n := failed.Load() - first; n < 4 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	after, err := c.msas().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		c.t.Errorf("the status was written: %+v, before %+v", after.Status, before.Status)
	}
}

func testMintFailure(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
	failed := c.failTokens()
	c.run()
	name := c.createMSA("", nil)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	c.msaIs(name, v1beta1.ConditionAllServiceAccountPresent, v1beta1.ReasonServiceAccountPresent)
	if account.Status.TokenSecretRef != nil {
		t.Errorf("Secret %+v", account.Status.TokenSecretRef)
	}
	c.unchanged(clock, name, failed)
	c.onRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, nil)
}

// testExpired: a token that cannot be replaced is reported for as long as it is
// valid, and no longer.
func testExpired(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
	c.run()
	name := c.createMSA("", tenMinutes)
	_, secret := c.reported(name, nil)
	failed := c.failTokens()
	clock.Step(8*time.Minute + 5*time.Second)
	account := c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenReportFailed)
	if account.Status.TokenSecretRef == nil || account.Status.ExpirationTimestamp == nil {
		t.Error("the token is still valid, and no longer reported")
	}
	c.msaIs(name, v1beta1.ConditionSecretCreated, v1beta1.ReasonSecretCreated)
	clock.Step(2 * time.Minute)
	account = c.msaIs(name, v1beta1.ConditionTokenReported, v1beta1.ReasonTokenExpired)
	if account.Status.TokenSecretRef != nil || account.Status.ExpirationTimestamp != nil {
		t.Errorf("still reported: %+v", account.Status)
	}
	c.unchanged(clock, name, failed)
	c.onRequest(nil)
	clock.Step(3 * time.Minute)
	c.reported(name, secret)
}

// testRejected: a token that looks good, and that the managed cluster does not
// accept, is replaced; one that could not be reviewed is not.
func testRejected(t *testing.T, c *cluster) {
	c.grantSecrets()
	clock := c.runningClock()
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
	eventually(t, "reviews have failed", func(context.Context) error {
		clock.Step(time.Second)
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if still, err := c.msas().Get(t.Context(), name, metav1.GetOptions{}); err != nil || tokens.Load() == 0 && still.ResourceVersion != account.ResourceVersion {
		t.Errorf("a review that failed was reported: %+v (%v)", still.Status, err)
	}
	clock.Step(10 * time.Second)
	_, again := c.reported(name, secret)
	if bytes.Equal(again.Data[v1beta1.SecretTokenKey], secret.Data[v1beta1.SecretTokenKey]) || tokens.Load() != 1 {
		t.Errorf("%d tokens", tokens.Load())
	}
}
