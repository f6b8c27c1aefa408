package awsapply

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// about reports whether a call concerns the identity of a cluster.
func about(call fakeaws.Call, d irsa.Desired) bool {
	for _, value := range call.Parameters {
		if strings.Contains(value, d.HubRoleName()) {
			return true
		}
	}
	return false
}

// A temporary fault of any call is repaired within the same Provision or Remove.
func TestOneFaultCausesNoError(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	faults := map[string]fakeaws.Fault{
		"throttle": fakeaws.Throttle(), "500": fakeaws.ServerError(500), "503": fakeaws.ServerError(503),
		"lost-response": fakeaws.LostResponse(), "lost-request": fakeaws.LostRequest(),
	}
	type test struct {
		desired   irsa.Desired
		operation string
		fault     fakeaws.Fault
		remove    bool
		injected  bool
	}
	var mu sync.Mutex
	var tests []*test
	for name, fault := range faults {
		for _, operation := range []string{"CreateRole", "PutRolePolicy", "CreateAccessEntry"} {
			tests = append(tests, &test{desired: desired(strings.ToLower(operation) + "-" + name), operation: operation, fault: fault})
		}
		for _, operation := range []string{"DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole"} {
			tests = append(tests, &test{desired: desired(strings.ToLower(operation) + "-" + name), operation: operation, fault: fault, remove: true})
		}
	}
	c.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
		mu.Lock()
		defer mu.Unlock()
		for _, test := range tests {
			if test.operation == call.Operation && !test.injected && about(call, test.desired) {
				test.injected = true
				return test.fault
			}
		}
		return fakeaws.Fault{}
	})
	var running sync.WaitGroup
	for _, test := range tests {
		running.Go(func() {
			if err := c.Provision(c.ctx, test.desired, true); err != nil {
				t.Errorf("Provision(%s) = %v, want no error", test.desired.ClusterName, err)
			}
			if test.remove {
				if err := c.Remove(c.ctx, test.desired); err != nil {
					t.Errorf("Remove(%s) = %v, want no error", test.desired.ClusterName, err)
				}
			}
		})
	}
	running.Wait()
	var left []irsa.Desired
	for _, test := range tests {
		if !test.injected {
			t.Errorf("injected faults of %s = 0, want 1", test.desired.ClusterName)
		}
		if !test.remove {
			left = append(left, test.desired)
		}
	}
	c.wantProvisioned(t, left...)
}

// The error of a permanent fault names the operation, and the next Provision continues from there.
func TestProvisionContinuesAfterAnError(t *testing.T) {
	for _, operation := range []string{"CreateRole", "PutRolePolicy", "CreateAccessEntry"} {
		t.Run(operation, func(t *testing.T) {
			c := newCloud(t, fakeaws.Options{})
			d := desired("cluster1")
			c.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
				if call.Operation == operation {
					return fakeaws.Error("LimitExceeded")
				}
				return fakeaws.Fault{}
			})
			err := c.Provision(c.ctx, d, true)
			if awserror.Code(err) != "LimitExceeded" || !strings.Contains(err.Error(), operation) || !strings.Contains(err.Error(), d.HubRoleName()) {
				t.Errorf("Provision() with a failing %s = %v, want LimitExceeded with the operation and the role", operation, err)
			}
			c.SetFaults(nil)
			if err := c.Provision(c.ctx, d, false); err != nil {
				t.Fatal(err)
			}
			c.wantProvisioned(t, d)
			made := 0
			for _, call := range c.Calls() {
				if call.Operation == operation {
					made++
				}
			}
			if made != 2 {
				t.Errorf("calls of %s = %d, want 2", operation, made)
			}
		})
	}
}

// A failed call does not prevent the other calls that revoke access.
func TestRemoveContinuesAfterAnError(t *testing.T) {
	for _, operation := range []string{"DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole"} {
		t.Run(operation, func(t *testing.T) {
			c := newCloud(t, fakeaws.Options{})
			d := desired("cluster1")
			if err := c.Provision(c.ctx, d, true); err != nil {
				t.Fatal(err)
			}
			c.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
				if call.Operation == operation {
					return fakeaws.Error("AccessDenied")
				}
				return fakeaws.Fault{}
			})
			if err := c.Remove(c.ctx, d); awserror.Code(err) != "AccessDenied" || !strings.Contains(err.Error(), operation) {
				t.Errorf("Remove() with a failing %s = %v, want AccessDenied with the operation", operation, err)
			}
			if operation == "DeleteAccessEntry" && len(c.Roles(hubAccount)) > 0 || operation != "DeleteAccessEntry" && len(c.AccessEntries(hub.String())) > 0 {
				t.Errorf("roles, access entries after Remove() with a failing %s = %v, %v, want only the one of the failed call", operation, c.Roles(hubAccount), c.AccessEntries(hub.String()))
			}
			c.SetFaults(nil)
			if err := c.Remove(c.ctx, d); err != nil {
				t.Fatal(err)
			}
			c.wantProvisioned(t)
		})
	}
}

// EKS may not find a role that was created just before.
func TestEventualConsistency(t *testing.T) {
	c := newCloud(t, fakeaws.Options{UnseenByEKS: 2})
	d := desired("cluster1")
	var codes []string
	fresh := true
	await.Eventually(t, "Provision succeeds", func(ctx context.Context) error {
		err := c.Provision(ctx, d, fresh)
		fresh = false
		if err != nil {
			codes = append(codes, awserror.Code(err))
		}
		return err
	})
	if !slices.Equal(codes, []string{"InvalidParameterException", "InvalidParameterException"}) {
		t.Errorf("error codes of Provision() = %v, want InvalidParameterException twice", codes)
	}
	c.wantProvisioned(t, d)

	// IAM may not find the role yet either: CreateRole reports that it exists, and GetRole that it
	// does not exist.
	d2 := desired("cluster2")
	c.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
		switch call.Operation {
		case "CreateRole":
			return fakeaws.Error("EntityAlreadyExists")
		case "GetRole":
			return fakeaws.Error("NoSuchEntity")
		}
		return fakeaws.Fault{}
	})
	c.ResetCalls()
	if err := c.Provision(c.ctx, d2, true); awserror.Code(err) != "EntityAlreadyExists" {
		t.Errorf("Provision() with a role that GetRole does not find = %v, want EntityAlreadyExists", err)
	}
	if calls := c.Calls(); len(calls) > 3*maxRounds {
		t.Errorf("calls of Provision() = %d, want at most %d", len(calls), 3*maxRounds)
	}
}

// TestRandomFaults provisions and removes clusters concurrently with random faults. Afterwards AWS
// must contain exactly the desired resources.
func TestRandomFaults(t *testing.T) {
	c := newCloud(t, fakeaws.Options{UnseenByEKS: 1})
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	c.SetFaults(func(fakeaws.Call) fakeaws.Fault {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(100) >= 15 {
			return fakeaws.Fault{}
		}
		return []fakeaws.Fault{
			fakeaws.Throttle(), fakeaws.ServerError(500), fakeaws.ServerError(503), fakeaws.LostResponse(), fakeaws.LostRequest(),
			fakeaws.Error("AccessDenied"), fakeaws.Error("ConcurrentModification"), fakeaws.Error("LimitExceeded"),
		}[random.IntN(8)]
	})
	until := func(what string, f func(context.Context) error) {
		if err := await.Poll(c.ctx, f); err != nil {
			t.Errorf("%s: %v, want success", what, err)
		}
	}
	var running sync.WaitGroup
	var left []irsa.Desired
	for i := range 40 {
		d := desired(fmt.Sprintf("cluster%d", i))
		stays := i%2 == 0
		if stays {
			left = append(left, d)
		}
		running.Go(func() {
			fresh := true
			provision := func(ctx context.Context) error {
				err := c.Provision(ctx, d, fresh)
				fresh = false
				return err
			}
			remove := func(ctx context.Context) error { return c.Remove(ctx, d) }
			until("provisioning "+d.ClusterName, provision)
			until("verifying "+d.ClusterName, provision)
			until("removing "+d.ClusterName, remove)
			fresh = true
			if stays {
				until("provisioning again "+d.ClusterName, provision)
				return
			}
			// Provisioning may fail after some calls. Remove follows without another read.
			_ = provision(c.ctx)
			until("removing again "+d.ClusterName, remove)
		})
	}
	running.Wait()
	c.SetFaults(nil)
	c.wantProvisioned(t, left...)
}
