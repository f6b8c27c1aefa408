package managedcluster

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Decisions reads ManagedClusters and writes decisions about them, in the store of the row of ManagedClusters. It returns errors
// until the row is served.
type Decisions struct {
	store definition.Handle[*REST]
}

var (
	_ registration.Decider  = &Decisions{}
	_ registration.Clusters = &Decisions{}
)

func (d *Decisions) open(ctx context.Context) (context.Context, *REST, error) {
	return d.store.Open(ctx, "ManagedClusters", "", metav1.NamespaceNone)
}

// Get implements registration.Clusters.
func (d *Decisions) Get(ctx context.Context, name string, options metav1.GetOptions) (*clusterv1.ManagedCluster, error) {
	ctx, store, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	obj, err := store.Get(ctx, name, &options)
	if err != nil {
		return nil, err
	}
	return versioned(obj), nil
}

// Apply implements registration.Decider.
func (d *Decisions) Apply(ctx context.Context, decision registration.Decision) (*clusterv1.ManagedCluster, error) {
	ctx, store, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	options := &metav1.UpdateOptions{}
	if decision.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx = context.WithValue(ctx, decisionKey{}, &decision.Acceptance)
	obj, _, err := store.Update(ctx, decision.Cluster, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		c := old.(*cluster.ManagedCluster)
		conflict := func(why string) error {
			return apierrors.NewConflict(clusterv1.Resource("managedclusters"), decision.Cluster, errors.New(why))
		}
		switch {
		case decision.UID != "" && decision.UID != c.UID:
			return nil, conflict("the ManagedCluster was deleted and created again")
		case decision.ResourceVersion != "" && decision.ResourceVersion != c.ResourceVersion:
			return nil, conflict("the ManagedCluster has changed since it was read")
		}
		c = c.DeepCopy()
		c.Spec.HubAcceptsClient = decision.Acceptance.Accepted
		return c, nil
	}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, options)
	if err != nil {
		return nil, err
	}
	return versioned(obj), nil
}
