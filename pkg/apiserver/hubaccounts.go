package apiserver

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// hubAccountsPeriod is how often the server looks whether the hub has accounts.
const hubAccountsPeriod = 10 * time.Second

// runAccountInformers watches the ManagedServiceAccounts that the hub keeps in its
// own CustomResourceDefinitions, from when it has these: with the public addon not
// installed there are none, and an informer would only fail. ClusterPermissions
// that name no account do not depend on it.
func (s *Server) runAccountInformers(ctx context.Context) {
	err := wait.PollUntilContextCancel(ctx, hubAccountsPeriod, true, func(context.Context) (bool, error) {
		resources, err := s.hub.Discovery().ServerResourcesForGroupVersion(authenticationv1beta1.SchemeGroupVersion.String())
		return err == nil && slices.ContainsFunc(resources.APIResources, func(resource metav1.APIResource) bool {
			return resource.Name == "managedserviceaccounts"
		}), nil
	})
	if err != nil {
		return // ctx has ended
	}
	s.informers.accounts.Start(ctx.Done())
	defer s.informers.accounts.Shutdown()
	<-ctx.Done()
}
