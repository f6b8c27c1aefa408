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
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/feed"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// labelPrefix precedes the hash of the hub in the label of a namespace.
	labelPrefix = "clusterset.open-cluster-management.io/"
	// maxLabelName is how long the name of a label may be after its prefix. The hash is longer.
	maxLabelName = 63

	isRequired, wasRequired = "true", "false"
)

const (
	queueName = "managednamespace"
	// workers is how many namespaces are handled at the same time: one whose admission webhook
	// does not answer holds up no other.
	workers = 4
	// minBackoff and maxBackoff bound how long a failed namespace waits for its next try.
	minBackoff = 200 * time.Millisecond
	maxBackoff = 2 * time.Minute
	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second
)

// Label returns the label by which namespaces show that a hub requires them.
func Label(hubHash string) string {
	return labelPrefix + hubHash[:min(len(hubHash), maxLabelName)]
}

// Config is what a Keeper needs. All fields are required.
type Config struct {
	// HubHash is what the hub is called on the managed cluster.
	HubHash string
	// Managed is a client of the managed cluster.
	Managed kubernetes.Interface
	// Changed is called when Condition may return something else. It must not block.
	Changed func()
}

// Keeper creates and labels the namespaces that a hub requires on one managed cluster.
type Keeper struct {
	label      string
	namespaces corev1client.NamespaceInterface
	changed    func()

	// informer has the namespaces that are labelled as required.
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	queue    workqueue.TypedRateLimitingInterface[string]
	backoff  workqueue.TypedRateLimiter[string]
	watchdog *fair.Watchdog

	mu       sync.Mutex
	required sets.Set[string]
	// conditions are the results for the required namespaces that were handled.
	conditions map[string]metav1.Condition
}

// New returns a Keeper. It makes no request.
func New(config Config) (*Keeper, error) {
	k := &Keeper{
		label: Label(config.HubHash), namespaces: config.Managed.CoreV1().Namespaces(), changed: config.Changed,
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		watchdog: fair.NewWatchdog(queueName, nil), conditions: map[string]metav1.Condition{},
	}
	k.queue = workqueue.NewTypedRateLimitingQueueWithConfig(k.backoff, workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName})
	k.informer = coreinformers.NewFilteredNamespaceInformer(config.Managed, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = k.label + "=" + isRequired
	})
	if err := k.informer.SetTransform(k.slim); err != nil {
		return nil, err
	}
	var err error
	k.synced, err = feed.OnChange(k.informer, func(namespace metav1.Object) { k.queue.Add(namespace.GetName()) })
	return k, err
}

// slim keeps of a namespace what is looked at.
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

// Require sets which namespaces the hub requires. Before the first call nothing is done.
func (k *Keeper) Require(names sets.Set[string]) {
	k.mu.Lock()
	before, first := k.required, k.required == nil
	k.required = names.Clone()
	if k.required == nil {
		k.required = sets.New[string]()
	}
	k.mu.Unlock()
	for name := range before.SymmetricDifference(k.required) {
		k.queue.Add(name)
	}
	if !first {
		return
	}
	// What is labelled was seen before anybody knew what is required.
	for _, name := range k.informer.GetStore().ListKeys() {
		k.queue.Add(name)
	}
}

// Condition returns the condition of a required namespace. It returns false if it is not known yet.
func (k *Keeper) Condition(name string) (metav1.Condition, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	condition, known := k.conditions[name]
	return condition, known
}

// Stuck returns an error that names the namespaces from which workers do not return, or nil
// if there are none.
func (k *Keeper) Stuck() error { return k.watchdog.Err() }

// Run works until ctx ends, and returns when all it started has ended.
func (k *Keeper) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer func() {
		k.queue.ShutDown()
		running.Wait()
	}()
	running.Go(func() { k.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), k.synced) {
		return
	}
	running.Go(func() { k.watchdog.Run(ctx) })
	for range workers {
		running.Go(func() { feed.Work(ctx, k.queue, k.watchdog, k.pass) })
	}
	<-ctx.Done()
}

// pass makes one pass over a namespace, and has a failed one tried again.
func (k *Keeper) pass(ctx context.Context, name string) {
	logger := klog.FromContext(ctx).WithValues("managedNamespace", name)
	passCtx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	wanted, known := k.requires(name)
	if !known {
		return
	}
	var err error
	if wanted {
		err = k.ensure(passCtx, name)
	} else {
		err = k.release(passCtx, name)
	}
	if ctx.Err() != nil {
		return
	}
	if k.note(name, wanted, err) && err != nil {
		logger.Error(err, "The namespace is not as the hub requires it")
	}
	if err == nil {
		k.backoff.Forget(name)
	} else {
		// At most the backoff, at least two thirds of it.
		k.queue.AddAfter(name, wait.Jitter(k.backoff.When(name)*2/3, 0.5))
	}
	if k.queue.Len() == 0 {
		// One report says all.
		k.changed()
	}
}

// requires reports whether the hub requires a namespace, and whether that is known yet.
func (k *Keeper) requires(name string) (wanted, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.required.Has(name), k.required != nil
}

// note keeps the result of a pass. It reports whether that is another one than before.
func (k *Keeper) note(name string, wanted bool, err error) bool {
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
	before, reported := k.conditions[name]
	if !k.required.Has(name) {
		delete(k.conditions, name)
		return reported || err != nil
	}
	if !wanted {
		// It has become required meanwhile, and is handled once more.
		return false
	}
	k.conditions[name] = condition
	return before != condition
}

// labelled returns the namespace of a name if it is labelled as required, or nil.
func (k *Keeper) labelled(name string) *corev1.Namespace {
	object, _, _ := k.informer.GetStore().GetByKey(name)
	if namespace, ok := object.(*corev1.Namespace); ok && namespace.Labels[k.label] == isRequired {
		return namespace
	}
	return nil
}

// ensure sees to it that a namespace exists and has the label.
func (k *Keeper) ensure(ctx context.Context, name string) error {
	live := k.labelled(name)
	if live == nil {
		var err error
		live, err = k.namespaces.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = k.namespaces.Create(ctx, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{k.label: isRequired}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create namespace: %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read namespace: %w", err)
		}
		if live.DeletionTimestamp == nil && live.Labels[k.label] != isRequired {
			return k.setLabel(ctx, live, isRequired)
		}
	}
	if live.DeletionTimestamp != nil {
		return errors.New("the namespace is being deleted; it is created again when it is gone")
	}
	return nil
}

// release marks a namespace as no longer required.
func (k *Keeper) release(ctx context.Context, name string) error {
	namespace := k.labelled(name)
	if namespace == nil {
		return nil
	}
	err := k.setLabel(ctx, namespace, wasRequired)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *Keeper) setLabel(ctx context.Context, namespace *corev1.Namespace, value string) error {
	return setLabel(ctx, k.namespaces, namespace, k.label, value)
}

// setLabel changes nothing but the label, and only of the namespace that was seen.
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

// Release marks all namespaces that a hub required as no longer required. It returns nil when that is done.
func Release(ctx context.Context, managed kubernetes.Interface, hubHash string) error {
	label, client := Label(hubHash), managed.CoreV1().Namespaces()
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + isRequired})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if err := setLabel(ctx, client, &list.Items[i], label, wasRequired); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", list.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}
