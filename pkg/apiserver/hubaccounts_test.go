package apiserver

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// optionalAccounts is a hub that serves ManagedServiceAccounts or no resource.
type optionalAccounts struct {
	discovery.DiscoveryInterface
	served atomic.Bool
}

func (o *optionalAccounts) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: version}
	if o.served.Load() {
		list.APIResources = []metav1.APIResource{{Name: "managedserviceaccounts"}}
	}
	return list, nil
}

// TestOptionalResourceIsFound checks that the server notices within 10 seconds that the hub begins to serve a resource.
func TestOptionalResourceIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &optionalAccounts{}
		found := make(chan time.Time, 1)
		go func() {
			if waitUntilServed(t.Context(), hub, authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")) {
				found <- time.Now()
			}
		}()
		time.Sleep(time.Hour + time.Millisecond)
		select {
		case <-found:
			t.Error("waitUntilServed() returned before the hub serves the resource")
		default:
		}
		hub.served.Store(true)
		served := time.Now()
		if after := (<-found).Sub(served); after > 10*time.Second {
			t.Errorf("the resource was found after %s, want 10s at most", after)
		}
	})
}
