package managedserviceaccount

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	setclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1beta2"
)

// Sets finds the clusters of the ManagedClusterSets that are bound to a namespace.
type Sets interface {
	// Clusters returns the sorted names of the clusters, and reports whether any set is bound.
	Clusters(namespace string) (names []string, bound bool, err error)
}

// unmanaged is the reason why a namespace has no clusters.
const unmanaged = "is not the namespace of a managed cluster, and has no ManagedClusterSetBinding of a ManagedClusterSet that exists"

// Placement finds the managed clusters of a namespace. It is safe for concurrent use.
type Placement struct {
	// Present reports whether a ManagedCluster exists, or why no object may wait for it.
	Present func(ctx context.Context, cluster string) (exists bool, refused string, err error)
	// SetsAndBindings reads objects that CachedSets may not contain yet.
	SetsAndBindings setclient.ClusterV1beta2Interface
	CachedSets      Sets
}

// CheckNamespace reports why the accounts of a namespace have no clusters: it neither belongs to a
// managed cluster nor is bound to a cluster set. If an account may not wait for the cluster, it returns
// an error of metadata.namespace.
func (p *Placement) CheckNamespace(ctx context.Context, namespace string) (waits string, invalid *field.Error, err error) {
	if _, bound, err := p.CachedSets.Clusters(namespace); err != nil || bound {
		return "", nil, err
	}
	exists, refused, err := p.Present(ctx, namespace)
	if err != nil || exists {
		return "", nil, err
	}
	// The cache may not contain new objects yet.
	bindings, err := p.SetsAndBindings.ManagedClusterSetBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", nil, err
	}
	for _, binding := range bindings.Items {
		if binding.DeletionTimestamp != nil {
			continue
		}
		_, err := p.SetsAndBindings.ManagedClusterSets().Get(ctx, binding.Spec.ClusterSet, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return "", nil, err
		}
	}
	if refused != "" {
		invalid = field.Invalid(field.NewPath("metadata", "namespace"), namespace, unmanaged)
	}
	return unmanaged, invalid, nil
}
