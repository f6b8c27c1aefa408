package bench_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// The objects of each cluster of a measured fleet, and what its agent does.
const (
	worksOfCluster      = 3
	namespacesOfCluster = 20
	// changedPods is the number of changed resources in a report, and keptPods is the number of Pods that change.
	changedPods, keptPods = 10, 100
	// reportPeriod, statusPeriod and leasePeriod are the intervals of the requests of an agent. As in the agent, a
	// random time is added to the first.
	reportPeriod = time.Minute
	statusPeriod = 5 * time.Minute
	// admitPoll is the interval of checks whether a cluster has access.
	admitPoll = 200 * time.Millisecond
	// retryPeriod is the time between attempts.
	retryPeriod = 5 * time.Second
	// deliveredPermissions is the number of ClusterPermissions whose delivery is measured, one in each deliveryPeriod.
	deliveredPermissions, deliveryPeriod = 300, 100 * time.Millisecond
)

// simulatedAgent has the watches of an agent, and sends its requests: through the hub, with the identity of the agent.
// Agents share connections to the hub, which the hub and not the server has to keep.
type simulatedAgent struct {
	cluster string
	ocm     *versioned.Clientset
	leases  coordinationclient.LeaseInterface
	pods    chan *search.Report
	// resources is the number of resources of the last full report.
	resources int
	// deliveries receives the ManifestWorks of the agent.
	deliveries *deliveries
}

// addAgent joins a cluster, creates its objects, and starts its agent.
func (s *sizingHub) addAgent(ctx context.Context, cluster string) (*simulatedAgent, error) {
	if err := s.admit(ctx, cluster); err != nil {
		return nil, err
	}
	if err := s.addObjects(ctx, cluster); err != nil {
		return nil, err
	}
	if err := repeatedly(ctx, func(ctx context.Context) error { return s.reportState(ctx, cluster) }); err != nil {
		return nil, fmt.Errorf("state of %s: %w", cluster, err)
	}
	config := s.Hub.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: localhub.AgentUser(cluster), Groups: []string{localhub.AgentGroup(cluster), clusterv1.AllAgentsGroup}}
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	a := &simulatedAgent{cluster: cluster, pods: make(chan *search.Report, 1), deliveries: &s.deliveries}
	if a.ocm, err = versioned.NewForConfigAndClient(config, client); err != nil {
		return nil, err
	}
	coordination, err := coordinationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	a.leases = coordination.Leases(cluster)
	// Interruptions are expected while the server restarts.
	running := klog.NewContext(s.running, logr.Discard())
	for _, part := range []func(context.Context){
		a.followCluster, a.followWorks, a.followAccounts, a.followNamespaces, a.renewLease, a.report, a.changeStatus,
	} {
		s.goroutines.Go(func() error { part(running); return nil })
	}
	return a, nil
}

// repeatedly calls write until it returns no error, because servers that many clusters join at the same time may not
// answer in time. An object that exists is one of an earlier attempt.
func repeatedly(ctx context.Context, write func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, retryPeriod, true, func(ctx context.Context) (bool, error) {
		last = write(ctx)
		return last == nil || apierrors.IsAlreadyExists(last), nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// create creates an object, and tries again after an error.
func create[T any](ctx context.Context, do func(context.Context, T, metav1.CreateOptions) (T, error), object T) error {
	return repeatedly(ctx, func(ctx context.Context) error {
		_, err := do(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// admit creates an accepted cluster, and waits until its agent has access.
func (s *sizingHub) admit(ctx context.Context, name string) error {
	clusters := s.direct.ClusterV1().ManagedClusters()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := create(ctx, clusters.Create, cluster); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, admitPoll, false, func(ctx context.Context) (bool, error) {
		cluster, err := clusters.Get(ctx, name, metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted), nil
	})
}

// addObjects creates what users create for a cluster.
func (s *sizingHub) addObjects(ctx context.Context, cluster string) error {
	for i := range worksOfCluster {
		if err := create(ctx, s.direct.WorkV1().ManifestWorks(cluster).Create, sizingWork(cluster, i)); err != nil {
			return err
		}
	}
	grant := permission("developers")
	grant.Namespace = cluster
	if err := create(ctx, s.direct.RbacV1alpha1().ClusterPermissions(cluster).Create, grant); err != nil {
		return err
	}
	account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "pipeline"}}
	if err := create(ctx, s.direct.AuthenticationV1beta1().ManagedServiceAccounts(cluster).Create, account); err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: account.Name, Labels: map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}},
		Data:       map[string][]byte{"token": bytes.Repeat([]byte("t"), 1200), "ca.crt": bytes.Repeat([]byte("c"), 1100)},
	}
	return create(ctx, s.hub.CoreV1().Secrets(cluster).Create, secret)
}

// sizingWork returns a ManifestWork of an application.
func sizingWork(cluster string, i int) *workv1.ManifestWork {
	app := fmt.Sprintf("app-%d", i)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: app, Labels: map[string]string{"app": app}}}
	for _, manifest := range []string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q,"namespace":"default"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"app","image":"registry.example.com/%[1]s:v1","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%[1]q,"namespace":"default"},"spec":{"selector":{"app":%[1]q},"ports":[{"port":80,"targetPort":8080}]}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%[1]q,"namespace":"default"},"data":{"config.yaml":"%[2]s"}}`,
	} {
		raw := fmt.Appendf(nil, manifest, app, bytes.Repeat([]byte("setting: value;"), 50))
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	return work
}

// reportState writes what an agent writes once: the namespaces and the state of the cluster, and the states of the
// objects. An administrator writes it directly, because the hub would be busy with the permissions of the agents.
func (s *sizingHub) reportState(ctx context.Context, name string) error {
	now := metav1.Now().Rfc3339Copy()
	status := map[string]any{
		"conditions": []metav1.Condition{
			{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue, Reason: "ManagedClusterJoined", LastTransitionTime: now},
			{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable", LastTransitionTime: now},
		},
		"version":       map[string]string{"kubernetes": "v1.36.3"},
		"capacity":      map[string]string{"cpu": "48", "memory": "192Gi", "pods": "330"},
		"allocatable":   map[string]string{"cpu": "46", "memory": "180Gi", "pods": "330"},
		"clusterClaims": []clusterv1.ManagedClusterClaim{{Name: "id.k8s.io", Value: name}, {Name: "kubeversion.open-cluster-management.io", Value: "v1.36.3"}},
	}
	// The hub keeps its own conditions only in the whole list.
	cluster, err := s.direct.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range status["conditions"].([]metav1.Condition) {
		meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	}
	status["conditions"] = cluster.Status.Conditions
	if _, err := s.direct.ClusterV1().ManagedClusters().Patch(ctx, name, types.MergePatchType, patchOf("status", status), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	for i := range namespacesOfCluster {
		namespace := &rbacv1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprintf("namespace-%d", i), Labels: map[string]string{"team": fmt.Sprintf("team-%d", i)}}}
		namespace.Labels["kubernetes.io/metadata.name"] = namespace.Name
		namespace.Spec.NamespaceUID = types.UID(fmt.Sprintf("%s-%d", name, i))
		if err := create(ctx, s.direct.RbacV1alpha1().ClusterNamespaces(name).Create, namespace); err != nil {
			return err
		}
	}
	works, err := s.direct.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range works.Items {
		finalizers := patchOf("metadata", map[string]any{"finalizers": []string{workv1.ManifestWorkFinalizer}})
		if _, err := s.direct.WorkV1().ManifestWorks(name).Patch(ctx, works.Items[i].Name, types.MergePatchType, finalizers, metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := reportWork(ctx, s.direct, &works.Items[i], 0); err != nil {
			return err
		}
	}
	accounts, err := s.direct.AuthenticationV1beta1().ManagedServiceAccounts(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range accounts.Items {
		account := &accounts.Items[i]
		account.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: account.Name, LastRefreshTimestamp: now}
		account.Status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: "default", Name: account.Name}
		account.Status.ExpirationTimestamp = &metav1.Time{Time: now.Add(24 * time.Hour)}
		account.Status.Conditions = []metav1.Condition{{Type: "TokenReported", Status: metav1.ConditionTrue, Reason: "TokenReported", LastTransitionTime: now}}
		if _, err := s.direct.AuthenticationV1beta1().ManagedServiceAccounts(name).UpdateStatus(ctx, account, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func patchOf(field string, value any) []byte {
	patch, err := json.Marshal(map[string]any{field: value})
	if err != nil {
		panic(err) // the values of this file can be encoded
	}
	return patch
}

// reportWork writes the status of a ManifestWork. replicas is its feedback.
func reportWork(ctx context.Context, client *versioned.Clientset, work *workv1.ManifestWork, replicas int64) error {
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Complete", Message: "All objects are in the state of the manifests",
			LastTransitionTime: work.CreationTimestamp, ObservedGeneration: work.Generation,
		}
	}
	status := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkApplied), condition(workv1.WorkAvailable)}}
	for i := range work.Spec.Workload.Manifests {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta:    workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: work.Name},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "replicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &replicas}}}},
			Conditions:      []metav1.Condition{condition(workv1.WorkApplied), condition(workv1.WorkAvailable)},
		})
	}
	_, err := client.WorkV1().ManifestWorks(work.Namespace).Patch(ctx, work.Name, types.MergePatchType, patchOf("status", status), metav1.PatchOptions{}, "status")
	return err
}

// each calls do once in each period, first after a part of it, until ctx ends. It ignores errors: the agent tries again.
func (a *simulatedAgent) each(ctx context.Context, period time.Duration, jitter float64, do func(context.Context) error) {
	for next := time.Duration(rand.Int64N(int64(period))); ; next = wait.Jitter(period, jitter) {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
		requestCtx, cancel := context.WithTimeout(ctx, period)
		_ = do(requestCtx)
		cancel()
	}
}

func (a *simulatedAgent) renewLease(ctx context.Context) {
	var lease *coordinationv1.Lease
	a.each(ctx, leasePeriod*9/10, 0.11, func(ctx context.Context) (err error) {
		if lease == nil {
			if lease, err = a.leases.Get(ctx, registration.LeaseName, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		lease, err = a.leases.Update(ctx, lease, metav1.UpdateOptions{})
		if err != nil {
			lease = nil
		}
		return err
	})
}

// report sends changes of Pods, of which the last full report decides.
func (a *simulatedAgent) report(ctx context.Context) {
	seed := fnv.New64()
	_, _ = seed.Write([]byte(a.cluster))
	r := rand.New(rand.NewPCG(1, seed.Sum64()))
	var pods *search.Report
	a.each(ctx, reportPeriod, 0.5, func(ctx context.Context) error {
		select {
		case pods = <-a.pods:
		default:
		}
		if pods == nil {
			return nil
		}
		update := fleetgen.Update(r, pods, changedPods)
		return a.send(ctx, &update)
	})
}

// reportFull sends a full report, again after an error, as the agent does.
func (a *simulatedAgent) reportFull(ctx context.Context, full *search.Report) error {
	if err := repeatedly(ctx, func(ctx context.Context) error { return a.send(ctx, full) }); err != nil {
		return fmt.Errorf("full report of %s: %w", a.cluster, err)
	}
	a.resources = len(full.Put)
	pods := onlyPods(full)
	pods.Full = false
	pods.Put = append([]search.Resource(nil), pods.Put[:min(keptPods, len(pods.Put))]...)
	select {
	case <-a.pods:
	default:
	}
	a.pods <- pods
	return nil
}

// send sends a report, compressed as the agent does.
func (a *simulatedAgent) send(ctx context.Context, report *search.Report) error {
	body, err := fleetgen.Sync(report)
	if err != nil {
		return err
	}
	var compressed bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = compressor.Write(body)
	if err := errors.Join(err, compressor.Close()); err != nil {
		return err
	}
	request := a.ocm.Discovery().RESTClient().Post().AbsPath(searchPath+"namespaces", a.cluster, "inventories", a.cluster, "sync").
		SetHeader("Content-Type", "application/json").SetHeader("Content-Encoding", "gzip").MaxRetries(0).Body(compressed.Bytes())
	if report.Full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	return request.Do(ctx).Error()
}

func (a *simulatedAgent) changeStatus(ctx context.Context) {
	replicas := int64(0)
	a.each(ctx, statusPeriod, 0.1, func(ctx context.Context) error {
		work, err := a.ocm.WorkV1().ManifestWorks(a.cluster).Get(ctx, "app-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		replicas++
		return reportWork(ctx, a.ocm, work, replicas)
	})
}

// follow lists and watches until ctx ends, as an informer does.
func follow[L runtime.Object](ctx context.Context, client any, expected runtime.Object,
	list func(context.Context, metav1.ListOptions) (L, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, options)
		},
		WatchFuncWithContext: watch,
	}, client)
	cache.NewReflectorWithOptions(source, expected, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{Name: "sizing"}).RunWithContext(ctx)
}

func (a *simulatedAgent) followWorks(ctx context.Context) {
	works := a.ocm.WorkV1().ManifestWorks(a.cluster)
	follow(ctx, a.ocm, &workv1.ManifestWork{}, works.List, func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		watcher, err := works.Watch(ctx, options)
		if err != nil {
			return nil, err
		}
		return watch.Filter(watcher, func(event watch.Event) (watch.Event, bool) {
			if work, ok := event.Object.(*workv1.ManifestWork); ok && event.Type == watch.Added {
				a.deliveries.received(work)
			}
			return event, true
		}), nil
	})
}

func (a *simulatedAgent) followAccounts(ctx context.Context) {
	accounts := a.ocm.AuthenticationV1beta1().ManagedServiceAccounts(a.cluster)
	follow(ctx, a.ocm, &authenticationv1beta1.ManagedServiceAccount{}, accounts.List, accounts.Watch)
}

func (a *simulatedAgent) followNamespaces(ctx context.Context) {
	namespaces := a.ocm.RbacV1alpha1().ClusterNamespaces(a.cluster)
	follow(ctx, a.ocm, &rbacv1alpha1.ClusterNamespace{}, namespaces.List, namespaces.Watch)
}

// followCluster reads and watches the own ManagedCluster, as the agent does. After a restart, the server does not know
// the version of an object that has not changed. Then the watch begins at the current state.
func (a *simulatedAgent) followCluster(ctx context.Context) {
	clusters := a.ocm.ClusterV1().ManagedClusters()
	expired := false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		cluster, err := clusters.Get(ctx, a.cluster, metav1.GetOptions{})
		if err != nil {
			return
		}
		seconds := 300 + rand.Int64N(300)
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.cluster).String(), TimeoutSeconds: &seconds}
		if !expired {
			options.ResourceVersion = cluster.ResourceVersion
		}
		expired = false
		watcher, err := clusters.Watch(ctx, options)
		if err != nil {
			return
		}
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			expired = expired || event.Type == watch.Error
		}
	}, time.Second)
}

// deliveries are the ClusterPermissions of which agents wait for the ManifestWork, with the time of the request.
type deliveries struct {
	lock    sync.Mutex
	waiting map[types.NamespacedName]time.Time
	took    []time.Duration
}

func (d *deliveries) expect(permission types.NamespacedName) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.waiting == nil {
		d.waiting = map[types.NamespacedName]time.Time{}
	}
	d.waiting[permission] = time.Now()
}

func (d *deliveries) received(work *workv1.ManifestWork) {
	now := time.Now()
	owner := metav1.GetControllerOf(work)
	if owner == nil {
		return
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	permission := types.NamespacedName{Namespace: work.Namespace, Name: owner.Name}
	if started, found := d.waiting[permission]; found {
		d.took = append(d.took, now.Sub(started))
		delete(d.waiting, permission)
	}
}

// take returns the times, or false if an agent still waits.
func (d *deliveries) take() ([]time.Duration, bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if len(d.waiting) > 0 {
		return nil, false
	}
	took := d.took
	d.took = nil
	return took, true
}

// deliver creates ClusterPermissions of random clusters, one after another, and returns how long their agents waited.
func (s *sizingHub) deliver(b *testing.B) []time.Duration {
	b.Helper()
	if len(s.agents) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.Context(), sizingPatience)
	defer cancel()
	ticker := time.NewTicker(deliveryPeriod)
	defer ticker.Stop()
	for i := range deliveredPermissions {
		permission := permission(fmt.Sprintf("delivered-%d", i))
		permission.Namespace = s.agents[rand.IntN(len(s.agents))].cluster
		s.deliveries.expect(types.NamespacedName{Namespace: permission.Namespace, Name: permission.Name})
		if _, err := s.admin.RbacV1alpha1().ClusterPermissions(permission.Namespace).Create(ctx, permission, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		defer func() {
			_ = s.admin.RbacV1alpha1().ClusterPermissions(permission.Namespace).Delete(context.WithoutCancel(ctx), permission.Name, metav1.DeleteOptions{})
		}()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.Fatal(ctx.Err())
		}
	}
	var took []time.Duration
	err := wait.PollUntilContextCancel(ctx, admitPoll, true, func(context.Context) (done bool, _ error) {
		took, done = s.deliveries.take()
		return done, nil
	})
	if err != nil {
		b.Fatalf("waiting until agents have received %d ManifestWorks: %v", deliveredPermissions, err)
	}
	return took
}

// percentiles returns p50 and p99 as text.
func percentiles(durations []time.Duration) string {
	if len(durations) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(durations))
	return fmt.Sprintf("%.0f / %.0f ms", percentile(sorted, 50).Seconds()*1000, percentile(sorted, 99).Seconds()*1000)
}
