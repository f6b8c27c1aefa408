package managedclusterset

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	setclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// wellKnown contains the sets that exist on every hub.
var wellKnown = map[string]clusterv1beta2.ManagedClusterSelector{
	clusterv1beta2.DefaultClusterSet: {SelectorType: clusterv1beta2.ExclusiveClusterSetLabel},
	clusterv1beta2.GlobalClusterSet:  {SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}},
}

// Controller creates the sets that exist on every hub, and is the only writer of the status of sets
// and bindings. It runs on one replica at a time. It does not run on a hub with the controllers of
// OCM.
type Controller struct {
	client   setclient.ClusterV1beta2Interface
	resolver *Resolver
	sets     reconcile.Loop
	bindings reconcile.Loop
}

// NewController returns a Controller.
func NewController(client setclient.ClusterV1beta2Interface, resolver *Resolver) *Controller {
	c := &Controller{client: client, resolver: resolver}
	c.sets = reconcile.Loop{
		Name:      "managedclusterset",
		Reconcile: c.reconcileSet,
		Feeds: []reconcile.Feed{
			{Informer: resolver.sets.Informer(), Keys: reconcile.Own},
			{Informer: resolver.clusters.Informer(), Keys: reconcile.Keys(c.setsOf), Ignore: reconcile.Same(SameLabels)},
		},
	}
	for name := range wellKnown {
		c.sets.Initial = append(c.sets.Initial, cache.NewObjectName("", name))
	}
	c.bindings = reconcile.Loop{
		Name:      "managedclustersetbinding",
		Reconcile: c.reconcileBinding,
		Feeds: []reconcile.Feed{
			{Informer: resolver.bindings.Informer(), Keys: reconcile.Own},
			// A binding depends only on the existence of its set.
			{Informer: resolver.sets.Informer(), Keys: reconcile.Keys(c.bindingsOf), Ignore: reconcile.Always},
		},
	}
	return c
}

// Run reconciles until ctx ends, and returns when every worker has stopped. It may be called again
// afterwards, but not concurrently.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.sets.Run(ctx) })
	running.Go(func() { c.bindings.Run(ctx) })
	running.Wait()
}

// SameLabels reports whether an update of a cluster keeps its labels, and so its sets.
func SameLabels(before, after *clusterv1.ManagedCluster) bool {
	return maps.Equal(before.Labels, after.Labels)
}

func (c *Controller) setsOf(cluster *clusterv1.ManagedCluster) []cache.ObjectName {
	return reconcile.Listed(c.resolver.selecting(cluster))
}

func (c *Controller) bindingsOf(set *clusterv1beta2.ManagedClusterSet) []cache.ObjectName {
	return reconcile.Names(c.resolver.bindingsOf(set.Name))
}

func (c *Controller) reconcileSet(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	set, err := c.resolver.sets.Lister().Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, c.createWellKnown(ctx, name.Name)
	}
	if err != nil || set.DeletionTimestamp != nil {
		return 0, err
	}
	members, err := c.resolver.members(set)
	if err != nil {
		return 0, err
	}
	condition := metav1.Condition{
		Type: clusterv1beta2.ConditionClusterSetEmpty, Status: metav1.ConditionFalse, ObservedGeneration: set.Generation,
		Reason: clusterv1beta2.ReasonClustersSelected, Message: fmt.Sprintf("%d ManagedClusters selected", len(members)),
	}
	if len(members) == 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, clusterv1beta2.ReasonNoClusterMatched, "No ManagedCluster selected"
	}
	set = set.DeepCopy()
	if !meta.SetStatusCondition(&set.Status.Conditions, condition) {
		return 0, nil
	}
	_, err = c.client.ManagedClusterSets().UpdateStatus(ctx, set, metav1.UpdateOptions{})
	return 0, reconcile.IgnoreOutdated(err)
}

// createWellKnown creates a set that exists on every hub.
func (c *Controller) createWellKnown(ctx context.Context, name string) error {
	selector, known := wellKnown[name]
	if !known {
		return nil
	}
	_, err := c.client.ManagedClusterSets().Create(ctx, &clusterv1beta2.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: *selector.DeepCopy()},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ManagedClusterSet %s: %w", name, err)
	}
	return nil
}

func (c *Controller) reconcileBinding(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	binding, err := reconcile.OrNil(c.resolver.bindings.Lister().ManagedClusterSetBindings(name.Namespace).Get(name.Name))
	if err != nil || binding == nil || binding.DeletionTimestamp != nil {
		return 0, err
	}
	condition := metav1.Condition{
		Type: clusterv1beta2.ConditionBound, Status: metav1.ConditionTrue, ObservedGeneration: binding.Generation,
		Reason: clusterv1beta2.ReasonClusterSetBound, Message: "The ManagedClusterSet is bound to this namespace",
	}
	switch _, err := c.resolver.sets.Lister().Get(binding.Spec.ClusterSet); {
	case apierrors.IsNotFound(err):
		condition.Status, condition.Reason = metav1.ConditionFalse, clusterv1beta2.ReasonClusterSetNotFound
		condition.Message = fmt.Sprintf("ManagedClusterSet %s does not exist", binding.Spec.ClusterSet)
	case err != nil:
		return 0, err
	}
	binding = binding.DeepCopy()
	if !meta.SetStatusCondition(&binding.Status.Conditions, condition) {
		return 0, nil
	}
	_, err = c.client.ManagedClusterSetBindings(name.Namespace).UpdateStatus(ctx, binding, metav1.UpdateOptions{})
	return 0, reconcile.IgnoreOutdated(err)
}
