package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"open-cluster-management.io/hub-apiserver/pkg/agent/managednamespaces"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	agentversion "open-cluster-management.io/hub-apiserver/pkg/version"
)

// Reasons of the conditions that an agent writes.
const (
	reasonJoined       = "ManagedClusterJoined"
	reasonAvailable    = "ManagedClusterAvailable"
	reasonNotAvailable = "ManagedClusterKubeAPIServerUnavailable"
	reasonResponding   = "WorkersResponding"
	reasonStuck        = "WorkersStuck"
)

// conditionWorkers is the condition that all workers of the agent return. It does not affect the
// condition Available: the cluster serves its workloads, and a tenant who blocks a worker must not
// cause taints on the ManagedCluster.
const conditionWorkers = "AgentWorkersResponding"

const (
	// Claims that every cluster reports.
	claimID          = "id.k8s.io"
	claimKubeVersion = "kubeversion.open-cluster-management.io"
	// labelSpokeOnly is a label of ClusterClaims that are not reported, regardless of its value.
	labelSpokeOnly = "open-cluster-management.io/spoke-only"
	// maxClaims bounds the number of reported claims.
	maxClaims = 100
	// statusPeriod, with a jitter of up to 50 %, is the interval at which the agent observes the
	// cluster.
	statusPeriod = 15 * time.Second
)

var clusterClaims = schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1alpha1", Resource: "clusterclaims"}

type reporter struct {
	*membership
	nodes cache.SharedIndexInformer
	// namespaces creates and labels the namespaces that the hub requires.
	namespaces *managednamespaces.Keeper
	// due is signalled to report immediately.
	due chan struct{}
}

type observed struct {
	available, workers    metav1.Condition
	retained              metav1.Condition
	version               string
	capacity, allocatable clusterv1.ResourceList
	claims                []clusterv1.ManagedClusterClaim
	// namespaces returns the condition of a namespace that the hub requires, and whether it is
	// known. It may be nil.
	namespaces func(name string) (metav1.Condition, bool)
	// claimsKnown and resourcesKnown are true if claims and resources could be read. Otherwise the
	// report does not change them.
	claimsKnown, resourcesKnown bool
}

func newReporter(m *membership) (*reporter, error) {
	r := &reporter{membership: m, due: make(chan struct{}, 1)}
	r.nodes = coreinformers.NewNodeInformer(m.config.Managed, 0, cache.Indexers{})
	var err error
	r.namespaces, err = managednamespaces.New(managednamespaces.Config{
		HubHash: m.hub.Hash, Managed: m.config.Managed, Required: r.requiredNamespaces, Changed: r.namespacesChanged,
	})
	return r, errors.Join(err, r.nodes.SetTransform(keepResources))
}

// followNamespaces creates and labels the namespaces that the hub requires until ctx ends.
func (r *reporter) followNamespaces(ctx context.Context) {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { r.namespaces.Run(ctx) })
	for {
		r.namespaces.Refresh()
		r.namespacesChanged()
		select {
		case <-ctx.Done():
			return
		case <-r.relisted:
		}
	}
}

// requiredNamespaces returns the namespaces that the hub requires: none of a cluster that the hub is
// deleting, and nil before the ManagedCluster is known.
func (r *reporter) requiredNamespaces() sets.Set[string] {
	cluster := r.latest.Load()
	if cluster == nil {
		return nil
	}
	names := sets.New[string]()
	if cluster.DeletionTimestamp == nil {
		for _, namespace := range cluster.Status.ManagedNamespaces {
			names.Insert(namespace.Name)
		}
	}
	return names
}

// namespacesChanged triggers a report if the conditions of namespaces differ from those on the hub.
func (r *reporter) namespacesChanged() {
	if cluster := r.latest.Load(); cluster != nil && namespaceReport(cluster.Status.ManagedNamespaces, r.namespaces.Condition) != nil {
		reconcile.Signal(r.due)
	}
}

// namespaceReport returns the list with the current conditions of namespaces, or nil if the list
// already contains them. It ignores differences in the message of an available namespace.
func namespaceReport(listed []clusterv1.ClusterSetManagedNamespaceConfig, condition func(string) (metav1.Condition, bool)) []clusterv1.ClusterSetManagedNamespaceConfig {
	changed := false
	report := slices.Clone(listed)
	for i := range report {
		now, known := condition(report[i].Name)
		if !known {
			continue
		}
		before := meta.FindStatusCondition(report[i].Conditions, now.Type)
		if before != nil && before.Status == now.Status && before.Reason == now.Reason && (before.Message == now.Message || now.Status == metav1.ConditionTrue) {
			continue
		}
		report[i].Conditions = slices.Clone(report[i].Conditions)
		changed = meta.SetStatusCondition(&report[i].Conditions, now) || changed
	}
	if !changed {
		return nil
	}
	return report
}

func keepResources(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable},
	}, nil
}

func (r *reporter) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.nodes.RunWithContext(ctx) })
	watching.Go(func() { r.followNamespaces(ctx) })
	period := func() time.Duration { return wait.Jitter(statusPeriod, 0.5) }
	repeat(ctx, "Failed to report the status of the cluster", period, mostPause, r.due, func(ctx context.Context) error {
		err := r.report(ctx, r.observe(ctx))
		r.suspect(err)
		return err
	})
}

func (r *reporter) observe(ctx context.Context) *observed {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seen := &observed{available: metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue,
		Reason: reasonAvailable, Message: "The API server of the cluster is ready",
	}, workers: workersOf(reconcile.Stuck()), retained: r.retained(), namespaces: r.namespaces.Condition}
	if err := r.ready(ctx); err != nil {
		seen.available.Status, seen.available.Reason = metav1.ConditionFalse, reasonNotAvailable
		seen.available.Message = fmt.Sprintf("The API server of the cluster is not ready: %v", err)
		return seen
	}
	if version, err := r.config.Managed.Discovery().ServerVersion(); err == nil {
		seen.version = version.GitVersion
	}
	seen.claims, seen.claimsKnown = r.claims(ctx, seen.version)
	if r.nodes.HasSynced() {
		seen.capacity, seen.allocatable = r.resources()
		seen.resourcesKnown = true
	}
	return seen
}

// workersOf returns the condition of the workers of the agent. stuck names those that do not return.
func workersOf(stuck error) metav1.Condition {
	if stuck != nil {
		return metav1.Condition{Type: conditionWorkers, Status: metav1.ConditionFalse, Reason: reasonStuck, Message: stuck.Error()}
	}
	return metav1.Condition{Type: conditionWorkers, Status: metav1.ConditionTrue, Reason: reasonResponding, Message: "All workers of the agent respond"}
}

// retained returns the condition that objects stay that a restored hub does not know.
func (r *reporter) retained() metav1.Condition {
	condition := metav1.Condition{
		Type: clusterv1.ManagedClusterConditionObjectsRetained, Status: metav1.ConditionFalse,
		Reason: clusterv1.ReasonNothingRetained, Message: "The hub knows all applied objects",
	}
	if r.config.Retained != nil {
		if message := r.config.Retained(); message != "" {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, clusterv1.ReasonUnknownToRestoredHub, message
		}
	}
	return condition
}

// ready returns an error if the API server is not ready. If the API server does not serve /readyz
// to this agent, any response means that it is ready.
func (r *reporter) ready(ctx context.Context) error {
	client := r.config.Managed.Discovery().RESTClient()
	err := client.Get().AbsPath("/readyz").Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		err = client.Get().AbsPath("/version").Do(ctx).Error()
	}
	return err
}

// resources returns the capacity of all nodes, and the allocatable resources of schedulable nodes.
func (r *reporter) resources() (capacity, allocatable clusterv1.ResourceList) {
	capacity, allocatable = clusterv1.ResourceList{}, clusterv1.ResourceList{}
	nodes, _ := corelisters.NewNodeLister(r.nodes.GetIndexer()).List(labels.Everything()) // a lister does not fail
	for _, node := range nodes {
		add(capacity, node.Status.Capacity)
		if !node.Spec.Unschedulable {
			add(allocatable, node.Status.Allocatable)
		}
	}
	return capacity, allocatable
}

func add(to clusterv1.ResourceList, resources corev1.ResourceList) {
	for name, quantity := range resources {
		sum := to[clusterv1.ResourceName(name)]
		sum.Add(quantity)
		to[clusterv1.ResourceName(name)] = sum
	}
}

func (r *reporter) claims(ctx context.Context, version string) ([]clusterv1.ManagedClusterClaim, bool) {
	values := map[string]string{}
	system, err := r.config.Managed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, false
	}
	values[claimID], values[clusterv1.AgentVersionClaim] = string(system.UID), agentversion.Short()
	if version != "" {
		values[claimKubeVersion] = version
	}
	own := len(values)
	list, err := r.config.Dynamic.Resource(clusterClaims).List(ctx, metav1.ListOptions{ResourceVersion: "0", LabelSelector: "!" + labelSpokeOnly})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, false
	}
	if err == nil {
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
		for _, claim := range list.Items {
			value, _, err := unstructured.NestedString(claim.Object, "spec", "value")
			if err == nil && value != "" && (len(values) < maxClaims+own || values[claim.GetName()] != "") {
				values[claim.GetName()] = value
			}
		}
	}
	// ClusterClaims must not replace it: a hub that adopts the cluster trusts the holder of the key.
	delete(values, rehoming.KeyClaim)
	if known := r.store.last(); known != nil {
		if hash, err := rehoming.KeyHash(known.data[keyRehomingKey]); err == nil {
			values[rehoming.KeyClaim] = hash
		}
	}
	claims := make([]clusterv1.ManagedClusterClaim, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		claims = append(claims, clusterv1.ManagedClusterClaim{Name: name, Value: values[name]})
	}
	return claims, true
}

// report writes the fields that differ from the status on the hub.
func (r *reporter) report(ctx context.Context, seen *observed) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	clusters := r.conn.hub.ocm.ClusterV1().ManagedClusters()
	live := r.latest.Load()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if live == nil {
			var err error
			if live, err = clusters.Get(ctx, r.config.ClusterName, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		status := seen.on(live.Status)
		if equality.Semantic.DeepEqual(live.Status, status) {
			return nil
		}
		// A patch keeps fields that the agent does not define.
		before, err := json.Marshal(map[string]any{"status": live.Status})
		if err != nil {
			return err
		}
		after, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.UID, "resourceVersion": live.ResourceVersion}, "status": status})
		if err != nil {
			return err
		}
		patch, err := jsonpatch.CreateMergePatch(before, after)
		if err != nil {
			return err
		}
		_, err = clusters.Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		// After a conflict, read the ManagedCluster again: the last event of the watch may be
		// outdated.
		live = nil
		return err
	})
}

func (seen *observed) on(before clusterv1.ManagedClusterStatus) clusterv1.ManagedClusterStatus {
	status := *before.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue,
		Reason: reasonJoined, Message: "The agent of the cluster has joined the hub",
	})
	reported := meta.FindStatusCondition(status.Conditions, conditionWorkers)
	if reported == nil && seen.workers.Status == metav1.ConditionFalse || reported != nil && reported.Status != seen.workers.Status {
		// The condition is not written until it is False for the first time. Its message contains a
		// duration. A change of only the duration is not written.
		meta.SetStatusCondition(&status.Conditions, seen.workers)
	}
	if seen.retained.Status == metav1.ConditionTrue || meta.FindStatusCondition(status.Conditions, seen.retained.Type) != nil {
		meta.SetStatusCondition(&status.Conditions, seen.retained)
	}
	meta.SetStatusCondition(&status.Conditions, seen.available)
	status.Version.Kubernetes = cmp.Or(seen.version, status.Version.Kubernetes)
	if seen.resourcesKnown {
		status.Capacity, status.Allocatable = seen.capacity, seen.allocatable
	}
	if seen.claimsKnown {
		status.ClusterClaims = seen.claims
	}
	if seen.namespaces != nil {
		if report := namespaceReport(status.ManagedNamespaces, seen.namespaces); report != nil {
			status.ManagedNamespaces = report
		}
	}
	return status
}
