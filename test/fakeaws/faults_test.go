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
					t.Errorf("call is %+v", call)
				}
				return test.fault
			})
			s.ResetCalls()
			err := createNamed(t, c, role)
			_, stsErr := c.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
			_, eksErr := c.EKS.ListClusters(t.Context(), &eks.ListClustersInput{})
			if test.dropped {
				for _, err := range []error{err, stsErr, eksErr} {
					var apiErr smithy.APIError
					if err == nil || errors.As(err, &apiErr) {
						t.Errorf("error is %v, want a broken connection", err)
					}
				}
			} else {
				wantCode(t, err, test.iam)
				wantCode(t, stsErr, test.sts)
				wantCode(t, eksErr, test.eks)
				if got := statusOf(err); got != test.iamStatus {
					t.Errorf("status is %d, want %d", got, test.iamStatus)
				}
			}
			first := s.Calls()[0]
			if first.Fault != test.fault.Kind || first.ErrorCode != test.iam || first.Service != "iam" || first.Operation != "CreateRole" || first.Parameters["RoleName"] != role {
				t.Errorf("call is %+v", first)
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

// retrying is a client as others have it, but for its patience.
func retrying(c clients) *iam.Client {
	return iam.NewFromConfig(c.Config, func(o *iam.Options) {
		o.RetryMaxAttempts = 3
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	})
}

// TestRetries is that the SDK takes the faults for what they are, and tries again.
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
				t.Errorf("calls are %+v", calls)
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
		t.Fatal("the call did not come")
	}
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("took effect before its time: %+v", roles)
	}
	close(release)
	select {
	case err := <-done:
		succeed(t, err)
	case <-within(t):
		t.Fatal("the call did not end")
	}
	if roles := s.Roles(hubAccount); len(roles) != 1 {
		t.Errorf("took no effect: %+v", roles)
	}
}

// TestCloseEndsDelays is that Close waits for nothing that does not come.
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
		t.Fatal("the call did not come")
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for _, ch := range []chan error{closed, done} {
		select {
		case err := <-ch:
			if ch == closed {
				succeed(t, err)
			} else if err == nil {
				t.Error("the call succeeded")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("does not end")
		}
	}
	if roles := s.Roles(hubAccount); len(roles) != 0 {
		t.Errorf("took effect: %+v", roles)
	}
	succeed(t, s.Close())
}

// TestManyClients is for the race detector, and for the order of calls.
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
		t.Errorf("%d calls, %d entries", n, entries)
	}
}
