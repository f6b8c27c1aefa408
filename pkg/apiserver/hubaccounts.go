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

// servedPeriod is how often the server looks whether the hub has a resource.
const servedPeriod = 10 * time.Second

// waitUntilServed waits until the hub has a resource of its own
// CustomResourceDefinitions, which not every hub has: an informer of what is not
// there would only fail. It reports false if ctx ends before.
func waitUntilServed(ctx context.Context, hub discovery.DiscoveryInterface, resource schema.GroupVersionResource) bool {
	err := wait.PollUntilContextCancel(ctx, servedPeriod, true, func(context.Context) (bool, error) {
		served, err := hub.ServerResourcesForGroupVersion(resource.GroupVersion().String())
		return err == nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
			return r.Name == resource.Resource
		}), nil
	})
	return err == nil
}

// runAccountInformers watches the ManagedServiceAccounts that the hub keeps, from
// when it has these. ClusterPermissions that name no account do not depend on it.
func (s *Server) runAccountInformers(ctx context.Context) {
	if !waitUntilServed(ctx, s.hub.Discovery(), authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")) {
		return
	}
	s.informers.accounts.Start(ctx.Done())
	defer s.informers.accounts.Shutdown()
	<-ctx.Done()
}
