package fleetreview

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// selected returns the sorted names of the selected clusters that the caller may view. Others are treated like
// clusters that do not exist.
func (o Options) selected(ctx context.Context, selection *accessv1alpha1.ClusterSelection) ([]string, error) {
	scope, err := serving.Scope(ctx, o.Scopes)
	if err != nil {
		return nil, err
	}
	if !o.Synced() {
		return nil, serving.Unavailable("the clusters of the fleet are not listed yet; try again later")
	}
	matches, err := o.matcher(selection)
	if err != nil {
		return nil, err
	}
	existing, err := o.Clusters.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var names []string
	hub := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: o.HubCluster}}
	for _, cluster := range existing {
		if cluster.Name == o.HubCluster {
			hub = cluster
		} else if scope.Cluster(cluster.Name) && matches(cluster) {
			names = append(names, cluster.Name)
		}
	}
	// The hub needs no ManagedCluster.
	if o.HubCluster != "" && scope.WholeHub() && matches(hub) {
		names = append(names, o.HubCluster)
	}
	slices.Sort(names)
	return names, nil
}

// matcher returns whether a cluster meets all conditions of a selection.
func (o Options) matcher(selection *accessv1alpha1.ClusterSelection) (func(*clusterv1.ManagedCluster) bool, error) {
	selector := labels.Everything()
	if selection.LabelSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(selection.LabelSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	var sets []*clusterv1beta2.ManagedClusterSet
	for _, name := range selection.ClusterSets {
		set, err := o.Sets.Get(name)
		switch {
		case err == nil:
			sets = append(sets, set)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	named := make(map[string]bool, len(selection.Names))
	for _, name := range selection.Names {
		named[name] = true
	}
	return func(cluster *clusterv1.ManagedCluster) bool {
		if len(named) > 0 && !named[cluster.Name] || !selector.Matches(labels.Set(cluster.Labels)) {
			return false
		}
		return len(selection.ClusterSets) == 0 || slices.ContainsFunc(sets, func(set *clusterv1beta2.ManagedClusterSet) bool {
			// A set with an invalid selector contains nothing.
			contains, err := managedclusterset.Selects(set, cluster)
			return err == nil && contains
		})
	}, nil
}
