package managednamespaces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// labelPrefix precedes the hash of the hub in the label of a namespace.
	labelPrefix = "clusterset.open-cluster-management.io/"
	// maxLabelName is the maximum length of a label name after its prefix. The hash is longer.
	maxLabelName = 63

	// required and released are the values of the label.
	required, released = "true", "false"
)

const (
	// workers is the number of namespaces that are handled in parallel. It is more than one, so
	// that a namespace whose admission webhook does not respond does not delay the others.
	workers = 4
	// releaseTimeout bounds a call of Release.
	releaseTimeout = 30 * time.Second
)

// Label returns the label key of namespaces that a hub requires.
func Label(hubHash string) string {
	return labelPrefix + hubHash[:min(len(hubHash), maxLabelName)]
}

// Config is the configuration of a Keeper. All fields are required.
type Config struct {
	// HubHash identifies the hub on the managed cluster.
	HubHash string
	Managed kubernetes.Interface
	// Required returns the namespaces that the hub requires. Until they are known, it returns nil.
	Required func() sets.Set[string]
	// Changed is called when the result of Condition may have changed. It must not block.
	Changed func()
}

// Keeper creates and labels the namespaces that a hub requires on one managed cluster.
type Keeper struct {
	config     Config
	label      string
	namespaces corev1client.NamespaceInterface

	// informer contains the namespaces that are labelled as required.
	informer cache.SharedIndexInformer
	loop     reconcile.Loop

	mu sync.Mutex
	// conditions are the conditions of the required namespaces that have been handled.
	conditions map[string]metav1.Condition
}

// New returns a Keeper. It makes no request.
func New(config Config) (*Keeper, error) {
	k := &Keeper{
		config: config, label: Label(config.HubHash), namespaces: config.Managed.CoreV1().Namespaces(),
		conditions: map[string]metav1.Condition{},
	}
	k.informer = coreinformers.NewFilteredNamespaceInformer(config.Managed, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = k.label + "=" + required
	})
	k.loop = reconcile.Loop{
		Name:      "managednamespace",
		Feeds:     []reconcile.Feed{{Informer: k.informer, Keys: reconcile.Own, OnceKnown: k.keys}},
		Reconcile: k.pass,
		Workers:   workers, TenantWorkers: workers,
	}
	return k, k.informer.SetTransform(k.slim)
}

func (k *Keeper) slim(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion, DeletionTimestamp: namespace.DeletionTimestamp,
		Labels: map[string]string{k.label: namespace.Labels[k.label]},
	}}, nil
}

// Refresh makes a pass over the required namespaces, and over those that may not be required any longer.
func (k *Keeper) Refresh() {
	for _, key := range k.keys() {
		k.loop.Add(key)
	}
}

func (k *Keeper) keys() []cache.ObjectName {
	var keys []cache.ObjectName
	for name := range sets.New(k.informer.GetStore().ListKeys()...).Union(k.config.Required()) {
		keys = append(keys, cache.ObjectName{Name: name})
	}
	return keys
}

// Condition returns the condition of a required namespace, or false if it is not known yet.
func (k *Keeper) Condition(name string) (metav1.Condition, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	condition, known := k.conditions[name]
	return condition, known
}

// Run creates and labels namespaces until ctx ends. It returns when all its goroutines have ended.
func (k *Keeper) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { k.informer.RunWithContext(ctx) })
	k.loop.Run(ctx)
}

func (k *Keeper) pass(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	names := k.config.Required()
	if names == nil {
		return 0, nil
	}
	var err error
	if names.Has(key.Name) {
		err = k.ensure(ctx, key.Name)
	} else {
		err = k.release(ctx, key.Name)
	}
	if ctx.Err() == context.Canceled {
		return 0, ctx.Err()
	}
	k.setCondition(key.Name, names.Has(key.Name), err)
	if k.loop.Len() == 0 {
		// Each report includes all conditions.
		k.config.Changed()
	}
	return 0, err
}

func (k *Keeper) setCondition(name string, wanted bool, err error) {
	condition := metav1.Condition{
		Type: clusterv1.ConditionNamespaceAvailable, Status: metav1.ConditionTrue,
		Reason: clusterv1.ReasonNamespaceApplied, Message: "The namespace exists and has the label of the hub",
	}
	if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, clusterv1.ReasonNamespaceApplyFailed
		condition.Message = clusterv1.ShortNamespaceMessage(err.Error())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if wanted {
		k.conditions[name] = condition
	} else {
		delete(k.conditions, name)
	}
}

// labelled returns a namespace if it is labelled as required. Otherwise it returns nil.
func (k *Keeper) labelled(name string) *corev1.Namespace {
	object, _, _ := k.informer.GetStore().GetByKey(name)
	if namespace, ok := object.(*corev1.Namespace); ok && namespace.Labels[k.label] == required {
		return namespace
	}
	return nil
}

func (k *Keeper) ensure(ctx context.Context, name string) error {
	live := k.labelled(name)
	if live == nil {
		var err error
		live, err = k.namespaces.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = k.namespaces.Create(ctx, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{k.label: required}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create namespace: %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read namespace: %w", err)
		}
		if live.DeletionTimestamp == nil && live.Labels[k.label] != required {
			return setLabel(ctx, k.namespaces, live, k.label, required)
		}
	}
	if live.DeletionTimestamp != nil {
		return errors.New("the namespace is being deleted; it is created again after that")
	}
	return nil
}

func (k *Keeper) release(ctx context.Context, name string) error {
	namespace := k.labelled(name)
	if namespace == nil {
		return nil
	}
	err := setLabel(ctx, k.namespaces, namespace, k.label, released)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setLabel sets the label of a namespace if its UID has not changed.
func setLabel(ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace, label, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": namespace.UID, "labels": map[string]string{label: value}}})
	if err != nil {
		return err
	}
	if _, err := client.Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label namespace: %w", err)
	}
	return nil
}

// Release marks all namespaces that a hub required as no longer required.
func Release(ctx context.Context, managed kubernetes.Interface, hubHash string) error {
	label, client := Label(hubHash), managed.CoreV1().Namespaces()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + required})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if err := setLabel(ctx, client, &list.Items[i], label, released); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", list.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}
