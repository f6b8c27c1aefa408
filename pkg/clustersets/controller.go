package clustersets

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	setclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1beta2"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	setinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// wellKnown are the sets that every hub has.
var wellKnown = map[string]clusterv1beta2.ManagedClusterSelector{
	clusterv1beta2.DefaultClusterSet: {SelectorType: clusterv1beta2.ExclusiveClusterSetLabel},
	clusterv1beta2.GlobalClusterSet:  {SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}},
}

// Controller makes the sets that every hub has, and is the only writer of the
// status of sets and bindings. One of it acts on a hub at a time, and none where
// OCM's own controllers do.
type Controller struct {
	client   setclient.ClusterV1beta2Interface
	resolver *Resolver
	sets     reconcile.Loop
	bindings reconcile.Loop
}

// NewController returns a controller that is fed by the informers of its
// resolver, which the caller starts.
func NewController(client setclient.ClusterV1beta2Interface, resolver *Resolver, sets setinformers.ManagedClusterSetInformer, bindings setinformers.ManagedClusterSetBindingInformer, clusters clusterinformers.ManagedClusterInformer) *Controller {
	c := &Controller{client: client, resolver: resolver}
	c.sets = reconcile.Loop{
		Name:      "managedclusterset",
		Reconcile: c.reconcileSet,
		Feeds: []reconcile.Feed{
			{Informer: sets.Informer(), Keys: reconcile.Own},
			{Informer: clusters.Informer(), Keys: c.setsOf, Ignore: SameLabels},
		},
	}
	for name := range maps.Keys(wellKnown) {
		c.sets.Initial = append(c.sets.Initial, cache.NewObjectName("", name))
	}
	c.bindings = reconcile.Loop{
		Name:      "managedclustersetbinding",
		Reconcile: c.reconcileBinding,
		Feeds: []reconcile.Feed{
			{Informer: bindings.Informer(), Keys: reconcile.Own},
			// All that matters of a set is whether it exists.
			{Informer: sets.Informer(), Keys: c.bindingsOf, Ignore: func(_, _ any) bool { return true }},
		},
	}
	return c
}

// Run works until ctx ends, and returns once every worker has stopped. It may run
// again afterwards, but not twice at once.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.sets.Run(ctx) })
	running.Go(func() { c.bindings.Run(ctx) })
	running.Wait()
}

// SameLabels tells that a change of a cluster moves it into no set and out of none.
func SameLabels(old, obj any) bool {
	before, ok := old.(*clusterv1.ManagedCluster)
	if !ok {
		return false
	}
	after, ok := obj.(*clusterv1.ManagedCluster)
	return ok && maps.Equal(before.Labels, after.Labels)
}

func (c *Controller) setsOf(obj any) []cache.ObjectName {
	cluster, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return nil
	}
	names, err := c.resolver.SetsOf(cluster)
	if err != nil {
		utilruntime.HandleError(err)
		return nil
	}
	keys := make([]cache.ObjectName, 0, len(names))
	for _, name := range names {
		keys = append(keys, cache.NewObjectName("", name))
	}
	return keys
}

func (c *Controller) bindingsOf(obj any) []cache.ObjectName {
	set, ok := obj.(*clusterv1beta2.ManagedClusterSet)
	if !ok {
		return nil
	}
	bindings, err := c.resolver.bindingsOf(set.Name)
	if err != nil {
		utilruntime.HandleError(err)
		return nil
	}
	keys := make([]cache.ObjectName, 0, len(bindings))
	for _, binding := range bindings {
		keys = append(keys, cache.MetaObjectToName(binding))
	}
	return keys
}

func (c *Controller) reconcileSet(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	set, err := c.resolver.sets.Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, c.makeWellKnown(ctx, name.Name)
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
	return 0, unlessOutdated(err, "the status of ManagedClusterSet "+set.Name)
}

func (c *Controller) makeWellKnown(ctx context.Context, name string) error {
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
	binding, err := c.resolver.bindings.ManagedClusterSetBindings(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || binding.DeletionTimestamp != nil {
		return 0, err
	}
	condition := metav1.Condition{
		Type: clusterv1beta2.ConditionBound, Status: metav1.ConditionTrue, ObservedGeneration: binding.Generation,
		Reason: clusterv1beta2.ReasonClusterSetBound, Message: "The ManagedClusterSet is bound to this namespace",
	}
	switch _, err := c.resolver.sets.Get(binding.Spec.ClusterSet); {
	case apierrors.IsNotFound(err):
		condition.Status, condition.Reason = metav1.ConditionFalse, clusterv1beta2.ReasonClusterSetNotFound
		condition.Message = fmt.Sprintf("There is no ManagedClusterSet %s", binding.Spec.ClusterSet)
	case err != nil:
		return 0, err
	}
	binding = binding.DeepCopy()
	if !meta.SetStatusCondition(&binding.Status.Conditions, condition) {
		return 0, nil
	}
	_, err = c.client.ManagedClusterSetBindings(name.Namespace).UpdateStatus(ctx, binding, metav1.UpdateOptions{})
	return 0, unlessOutdated(err, "the status of ManagedClusterSetBinding "+name.String())
}

// unlessOutdated is no error for an object that has changed or gone since it was
// read: it is looked at again when the cache learns of that.
func unlessOutdated(err error, what string) error {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("writing %s: %w", what, err)
}
