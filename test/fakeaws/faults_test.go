package fakeaws_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

func createNamed(t *testing.T, c clients, name string) error {
	t.Helper()
	_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(trustUnknown)})
	return err
}

func statusOf(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func TestFaults(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	i := 0
	for name, test := range map[string]struct {
		fault           fakeaws.Fault
		iam, sts, eks   string // error codes
		iamStatus       int
		effect, dropped bool
	}{
		"throttle":      {fault: fakeaws.Throttle(), iam: "Throttling", sts: "Throttling", eks: "ThrottlingException", iamStatus: http.StatusBadRequest},
		"500":           {fault: fakeaws.ServerError(500), iam: "ServiceFailure", sts: "InternalFailure", eks: "ServerException", iamStatus: 500},
		"503":           {fault: fakeaws.ServerError(503), iam: "ServiceUnavailable", sts: "ServiceUnavailable", eks: "ServiceUnavailableException", iamStatus: 503},
		"code":          {fault: fakeaws.Error("LimitExceeded"), iam: "LimitExceeded", sts: "LimitExceeded", eks: "LimitExceeded", iamStatus: http.StatusBadRequest},
		"lost request":  {fault: fakeaws.LostRequest(), dropped: true},
		"lost response": {fault: fakeaws.LostResponse(), dropped: true, effect: true},
	} {
		i++
		role := fmt.Sprintf("role-%d", i)
		t.Run(name, func(t *testing.T) {
			s.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
				if call.Account != hubAccount || call.Caller == "" {
					t.Errorf("call = %+v, want one of account %s with a caller", call, hubAccount)
				}
				return test.fault
			})
			s.ResetCalls()
			err := createNamed(t, c, role)
			_, stsErr := c.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
			_, eksErr := c.EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
			if test.dropped {
				for _, err := range []error{err, stsErr, eksErr} {
					var apiErr smithy.APIError
					if err == nil || errors.As(err, &apiErr) {
						t.Errorf("error = %v, want a closed connection", err)
					}
				}
			} else {
				wantCode(t, err, test.iam)
				wantCode(t, stsErr, test.sts)
				wantCode(t, eksErr, test.eks)
				if got := statusOf(err); got != test.iamStatus {
					t.Errorf("status = %d, want %d", got, test.iamStatus)
				}
			}
			first := s.Calls()[0]
			if first.Fault != test.fault.Kind || first.ErrorCode != test.iam || first.Service != "iam" || first.Operation != "CreateRole" || first.Parameters["RoleName"] != role {
				t.Errorf("first call = %+v, want iam CreateRole of %s with fault %q and code %q", first, role, test.fault.Kind, test.iam)
			}
			s.SetFaults(nil)
			_, err = c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: &role})
			if test.effect {
				succeed(t, err)
			} else {
				wantCode(t, err, "NoSuchEntity")
			}
		})
	}
}

// retrying returns an IAM client with the SDK's standard retries and a short backoff.
func retrying(c clients) *iam.Client {
	return iam.NewFromConfig(c.Config, func(o *iam.Options) {
		o.RetryMaxAttempts = 3
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	})
}

// TestRetries checks that the SDK retries a call after each kind of transient fault.
func TestRetries(t *testing.T) {
	for name, fault := range map[string]fakeaws.Fault{
		"throttle": fakeaws.Throttle(), "500": fakeaws.ServerError(500), "503": fakeaws.ServerError(503), "lost request": fakeaws.LostRequest(),
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
			c.IAM = retrying(c)
			var once sync.Once
			s.SetFaults(func(fakeaws.Call) (f fakeaws.Fault) {
				once.Do(func() { f = fault })
				return f
			})
			succeed(t, createNamed(t, c, "role"))
			if calls := s.Calls(); len(calls) != 2 || calls[0].Fault != fault.Kind || calls[1].Fault != fakeaws.NoFault || calls[1].ErrorCode != "" {
				t.Errorf("Calls() = %+v, want one with fault %q and one that succeeds", calls, fault.Kind)
			}
		})
	}
	t.Run("lost response", func(t *testing.T) {
		s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
		c.IAM = retrying(c)
		var once sync.Once
		s.SetFaults(func(fakeaws.Call) (f fakeaws.Fault) {
			once.Do(func() { f = fakeaws.LostResponse() })
			return f
		})
		wantCode(t, createNamed(t, c, "role"), "EntityAlreadyExists")
	})
}

func TestDelay(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	s.SetFaults(func(fakeaws.Call) fakeaws.Fault {
		asked <- struct{}{}
		return fakeaws.Delay(release)
	})
	done := make(chan error, 1)
	go func() { done <- createNamed(t, c, "role") }()
	select {
	case <-asked:
	case <-within(t):
		t.Fatal("the server received no call in 30s, want one")
	}
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("Roles() during the delay = %+v, want none", roles)
	}
	close(release)
	select {
	case err := <-done:
		succeed(t, err)
	case <-within(t):
		t.Fatal("the delayed call did not end in 30s")
	}
	if roles := s.Roles(hubAccount); len(roles) != 1 {
		t.Errorf("Roles() after the delay = %+v, want one", roles)
	}
}

// TestCloseEndsDelays checks that Close ends delayed calls and does not wait for their delay.
func TestCloseEndsDelays(t *testing.T) {
	s, err := fakeaws.New(fakeaws.Options{})
	succeed(t, err)
	c := clientsFor(s, addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy))
	asked := make(chan struct{}, 1)
	s.SetFaults(func(fakeaws.Call) fakeaws.Fault {
		asked <- struct{}{}
		return fakeaws.Delay(make(chan struct{}))
	})
	done := make(chan error, 1)
	go func() { done <- createNamed(t, c, "role") }()
	select {
	case <-asked:
	case <-within(t):
		t.Fatal("the server received no call in 30s, want one")
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for _, ch := range []chan error{closed, done} {
		select {
		case err := <-ch:
			if ch == closed {
				succeed(t, err)
			} else if err == nil {
				t.Error("CreateRole() on a closed server = nil, want an error")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("Close or the delayed call did not end in 30s")
		}
	}
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("Roles() after Close = %+v, want none", roles)
	}
	succeed(t, s.Close())
}

// TestManyClients sends concurrent calls, for the race detector, and checks that the server
// records all of them.
func TestManyClients(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{StateFile: stateFile(t)}, fakeaws.ModeAPI)
	s.ResetCalls()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			role := fmt.Sprintf("role-%d", i)
			if err := createNamed(t, c, role); err != nil {
				t.Error(err)
			}
			s.SetFaults(nil)
			_ = s.Roles(hubAccount)
			if _, err := c.EKS.CreateAccessEntry(t.Context(), entryOf("arn:aws:iam::"+hubAccount+":role/"+role)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n, entries := len(s.Calls()), len(s.AccessEntries(hubARN)); n != 16 || entries != 8 {
		t.Errorf("server has %d calls and %d access entries, want 16 and 8", n, entries)
	}
}
