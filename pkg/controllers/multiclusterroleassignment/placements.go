package multiclusterroleassignment

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// PlacementDecisionResource is the resource of PlacementDecisions. The hub serves them if it has their
// CustomResourceDefinition.
var PlacementDecisionResource = schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1beta1", Resource: "placementdecisions"}

const (
	// placementLabel contains the name of the Placement of a PlacementDecision.
	placementLabel = "cluster.open-cluster-management.io/placement"

	byPlacement = "byPlacement"
	byCluster   = "byCluster"
)

// Placements finds the clusters in the decisions of Placements. A hub may serve PlacementDecisions later.
type Placements struct {
	informer cache.SharedIndexInformer
	served   atomic.Bool
}

// decision contains the clusters of a PlacementDecision.
type decision struct {
	metav1.ObjectMeta
	clusters []string
}

// placement returns the name of the Placement.
func (d *decision) placement() cache.ObjectName {
	return cache.NewObjectName(d.Namespace, d.Labels[placementLabel])
}

// NewPlacements returns Placements that know no decisions until the caller calls Run.
func NewPlacements(hub dynamic.Interface) (*Placements, error) {
	p := &Placements{informer: dynamicinformer.NewFilteredDynamicInformer(hub, PlacementDecisionResource, metav1.NamespaceAll, 0, cache.Indexers{
		byPlacement: reconcile.IndexNames(func(d *decision) []cache.ObjectName { return []cache.ObjectName{d.placement()} }),
		byCluster:   reconcile.Index(func(d *decision) []string { return d.clusters }),
	}, nil).Informer()}
	if err := p.informer.SetTransform(onlyClusters); err != nil {
		return nil, fmt.Errorf("informer of PlacementDecisions: %w", err)
	}
	return p, nil
}

// Run watches the decisions until ctx ends. The hub must serve them.
func (p *Placements) Run(ctx context.Context) {
	p.served.Store(true)
	p.informer.RunWithContext(ctx)
}

// known reports whether the decisions are known.
func (p *Placements) known() bool { return p.served.Load() && p.informer.HasSynced() }

// decisions returns the decisions under a value of an index.
func (p *Placements) decisions(index, value string) []*decision {
	return reconcile.Indexed[*decision](p.informer.GetIndexer(), index, value)
}

// onlyClusters removes all fields of a PlacementDecision that the controller does not read.
func onlyClusters(obj any) (any, error) {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	d := &decision{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Labels: map[string]string{placementLabel: object.GetLabels()[placementLabel]},
	}}
	items, _, _ := unstructured.NestedSlice(object.Object, "status", "decisions")
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			if name, ok := fields["clusterName"].(string); ok && name != "" {
				d.clusters = append(d.clusters, name)
			}
		}
	}
	return d, nil
}
