package managedserviceaccount

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

// Sets finds the clusters of the ManagedClusterSets that are bound to a namespace.
type Sets interface {
	// Clusters returns the sorted names of the clusters, and reports whether any set is bound.
	Clusters(namespace string) (names []string, bound bool, err error)
	// Missing returns the names of the bound sets that do not exist.
	Missing(namespace string) ([]string, error)
}

// Placement finds the managed clusters of a namespace. It is safe for concurrent use.
type Placement struct {
	// Clusters and SetsAndBindings read objects that the caches may not contain yet.
	Clusters        clusterclient.ManagedClustersGetter
	SetsAndBindings setclient.ClusterV1beta2Interface
	CachedClusters  clusterlisters.ManagedClusterLister
	CachedSets      Sets
}

// CheckNamespace returns an error of metadata.namespace if the namespace neither belongs to a managed
// cluster nor is bound to a cluster set.
func (p *Placement) CheckNamespace(ctx context.Context, namespace string) (*field.Error, error) {
	if _, err := p.CachedClusters.Get(namespace); err == nil {
		return nil, nil
	}
	if _, bound, err := p.CachedSets.Clusters(namespace); err != nil || bound {
		return nil, err
	}

	// The caches may not contain new objects yet.
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

// unmanaged returns the reason why a namespace has no clusters. missing are the bound sets that do not
// exist.
func unmanaged(missing []string) string {
	if len(missing) > 0 {
		return "is not the namespace of a managed cluster, and its ManagedClusterSetBindings refer to ManagedClusterSets that do not exist: " + strings.Join(missing, ", ")
	}
	return "is not the namespace of a managed cluster, and has no ManagedClusterSetBinding"
}
