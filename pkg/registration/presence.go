package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	registerclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/register/v1alpha1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

// Presence reports whether a cluster has joined, and whether objects may wait for it. It is safe for concurrent use.
type Presence struct {
	// CachedClusters may not contain new ManagedClusters yet. Clusters does.
	Clusters       clusterclient.ManagedClustersGetter
	CachedClusters clusterlisters.ManagedClusterLister
	// Registrations are the registrations of this server. It is nil if the server does not register clusters.
	Registrations registerclient.ManagedClusterRegistrationsGetter
	// Required is true if objects may not wait for a ManagedCluster.
	Required bool
}

// Check reports whether a ManagedCluster exists. If it does not and no object may wait for it, refused is the reason.
func (p *Presence) Check(ctx context.Context, cluster string) (exists bool, refused string, err error) {
	if _, err := p.CachedClusters.Get(cluster); err == nil {
		return true, "", nil
	}
	if _, err := p.Clusters.ManagedClusters().Get(ctx, cluster, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err == nil, "", err
	}
	if p.Required {
		return false, "is not the namespace of a managed cluster: there is no ManagedCluster of that name", nil
	}
	if reserved := ReservedName(cluster); reserved != "" {
		return false, "cannot be the namespace of a managed cluster: " + reserved, nil
	}
	if p.Registrations == nil {
		return false, "", nil
	}
	// A registration without its ManagedCluster is that of a cluster that was withdrawn, until its objects are removed.
	switch _, err := p.Registrations.ManagedClusterRegistrations().Get(ctx, cluster, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return false, "", nil
	case err != nil:
		return false, "", fmt.Errorf("reading the registration of cluster %q: %w", cluster, err)
	}
	return false, "is the namespace of a deleted ManagedCluster whose objects are being removed: try again after that", nil
}
