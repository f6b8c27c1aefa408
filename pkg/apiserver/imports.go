package apiserver

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registry/migration/imports"
)

// imports returns the stores into which objects are imported. The server refuses that if the hub forwards their version
// to an API server, or if the controllers of the server may run, because these act on what is not imported yet.
func (c CompletedConfig) imports() (*imports.Stores, error) {
	// Each import reads both objects.
	config := rest.CopyConfig(c.hub)
	config.QPS = -1
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of the hub: %w", err)
	}
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of APIServices: %w", err)
	}
	election := c.extra.LeaderElection
	services := client.ApiregistrationV1().APIServices()
	return imports.NewStores(func(ctx context.Context, version schema.GroupVersion) (bool, error) {
		service, err := reconcile.OrNil(services.Get(ctx, version.Version+"."+version.Group, metav1.GetOptions{}))
		return service != nil && service.Spec.Service != nil, err
	}, func(ctx context.Context) (bool, error) {
		lease, err := reconcile.OrNil(hub.CoordinationV1().Leases(election.ResourceNamespace).Get(ctx, election.ResourceName, metav1.GetOptions{}))
		return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == migrationv1alpha1.User, err
	}), nil
}
