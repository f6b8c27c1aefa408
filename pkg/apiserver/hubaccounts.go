package apiserver

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// servedPeriod is the interval of checks whether the hub serves a resource.
const servedPeriod = 10 * time.Second

// waitUntilServed waits until the hub serves an optional resource, because an informer that starts
// earlier fails. It returns false if ctx ends first.
func waitUntilServed(ctx context.Context, hub discovery.DiscoveryInterface, resource schema.GroupVersionResource) bool {
	err := wait.PollUntilContextCancel(ctx, servedPeriod, true, func(context.Context) (bool, error) {
		served, err := hub.ServerResourcesForGroupVersion(resource.GroupVersion().String())
		return err == nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
			return r.Name == resource.Resource
		}), nil
	})
	return err == nil
}

// runAccountInformers watches the ManagedServiceAccounts of the hub when it serves them. ClusterPermissions
// without accounts do not depend on them.
func (s *Server) runAccountInformers(ctx context.Context) {
	if !waitUntilServed(ctx, s.hub.Discovery(), authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")) {
		return
	}
	s.informers.accounts.Start(ctx.Done())
	defer s.informers.accounts.Shutdown()
	<-ctx.Done()
}
