package registration_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// gatedDriver waits for its gate before it provisions an identity.
type gatedDriver struct {
	registration.Driver
	reached chan<- struct{}
	gate    <-chan struct{}
}

func (d gatedDriver) Provision(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, verify bool) error {
	select {
	case d.reached <- struct{}{}:
	default:
	}
	select {
	case <-d.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.Driver.Provision(ctx, record, verify)
}

// roundTripper adapts a function to http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A cluster is deleted immediately after its acceptance. The driver marks the registration as
// provisioned while the server is about to remove the registration, because AWS has no objects of
// it yet.
func testDeletedMeanwhile(t *testing.T, hub *realHub) {
	const name = "meanwhile"
	own := *hub
	f := own.fleet(name)
	reached, gate, begun, stuck := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.account.stuck = stuck
	var open sync.Once
	own.rights = rest.CopyConfig(hub.rights)
	own.rights.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			// The server deletes the ClusterRole last.
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/clusterroles/open-cluster-management:managedcluster:"+name) {
				open.Do(func() {
					close(gate)
					select {
					case <-begun:
					case <-r.Context().Done():
					}
				})
			}
			return next.RoundTrip(r)
		})
	})
	f.drivers = func(drivers []registration.Driver) []registration.Driver {
		for i, driver := range drivers {
			if driver.Name() == registerv1alpha1.DriverAWSIRSA {
				drivers[i] = gatedDriver{Driver: driver, reached: reached, gate: gate}
			}
		}
		return drivers
	}
	f.create(t, name, arnOf(name))
	f.serve(t, 0)
	f.accept(t, name)
	select {
	case <-reached:
	case <-t.Context().Done():
		t.Fatal("the driver did not start to provision, want one call")
	}
	f.deleteCluster(t, name)
	eventually(t, "the registration is marked as provisioned", func(ctx context.Context) error {
		record, err := f.records.Get(ctx, name)
		if err == nil && (record.Status.IRSA == nil || !record.Status.IRSA.Provisioned) {
			err = errors.New("status.irsa.provisioned = false, want true")
		}
		return err
	})
	close(begun)
	eventually(t, "the removal waits for the driver", func(ctx context.Context) error {
		return f.recordSays(ctx, name, registerv1alpha1.RegistrationCleanedUp, metav1.ConditionFalse, registerv1alpha1.ReasonCleaningUp)
	})
	close(stuck)
	eventually(t, "all objects of the cluster are deleted", func(ctx context.Context) error { return f.isGone(ctx, name) })
	if f.account.roles() > 0 {
		t.Error("AWS has the role of a deleted cluster, want no role")
	}
}
