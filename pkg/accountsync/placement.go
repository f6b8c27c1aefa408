package accountsync

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	setclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1beta2"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
)

// Sets tells which clusters a namespace has by the sets that are bound to it.
type Sets interface {
	// Clusters returns the names of the clusters, sorted, and whether any set is bound.
	Clusters(namespace string) (names []string, bound bool, err error)
	// Missing returns the names of the sets that are bound and do not exist.
	Missing(namespace string) ([]string, error)
}

// Placement knows what namespaces mean to accounts. It is safe for concurrent use.
type Placement struct {
	// Clusters and SetsAndBindings read what the cached ones may not have yet.
	Clusters        clusterclient.ManagedClustersGetter
	SetsAndBindings setclient.ClusterV1beta2Interface
	CachedClusters  clusterlisters.ManagedClusterLister
	CachedSets      Sets
}

// CheckNamespace tells why a new account in a namespace would be on no managed
// cluster: seed 002 wants it to be that of a cluster, or bound to a cluster set.
func (p *Placement) CheckNamespace(ctx context.Context, namespace string) (*field.Error, error) {
	if _, err := p.CachedClusters.Get(namespace); err == nil {
		return nil, nil
	}
	if _, bound, err := p.CachedSets.Clusters(namespace); err != nil || bound {
		return nil, err
	}

	// What was created a moment ago may not be in the caches yet.
	_, err := p.Clusters.ManagedClusters().Get(ctx, namespace, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	bindings, err := p.SetsAndBindings.ManagedClusterSetBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, binding := range bindings.Items {
		if binding.DeletionTimestamp != nil {
			continue
		}
		_, err := p.SetsAndBindings.ManagedClusterSets().Get(ctx, binding.Spec.ClusterSet, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		missing = append(missing, binding.Spec.ClusterSet)
	}
	return field.Invalid(field.NewPath("metadata", "namespace"), namespace, unmanaged(missing)), nil
}

// unmanaged says why a namespace has no clusters. Missing are the sets that are
// bound to it and do not exist.
func unmanaged(missing []string) string {
	if len(missing) > 0 {
		return "is not the namespace of a managed cluster, and the ManagedClusterSets that are bound to it do not exist: " + strings.Join(missing, ", ")
	}
	return "is neither the namespace of a managed cluster nor bound to a set of clusters: there is no ManagedCluster of that name and no ManagedClusterSetBinding in it"
}
