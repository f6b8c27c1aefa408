package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// executorNamespace contains the executors of the benchmarks, and the objects that they apply.
	executorNamespace = "bench-executors"
	// manifestsOfWork is the number of manifests of a large ManifestWork. fewManifests is
	// the number of manifests of each of many ManifestWorks.
	manifestsOfWork = 100
	fewManifests    = 5
	// worksPerExecutor is the number of ManifestWorks that name the same executor.
	worksPerExecutor = 50
	// loadPeriod is the interval at which load changes a ManifestWork.
	loadPeriod = 20 * time.Millisecond
	// writesBefore is the number of writes of load that are measured before the revocation.
	writesBefore = 10
	// afterRefusal is the time for which load continues after the ManifestWork is refused.
	afterRefusal = 500 * time.Millisecond
	// refusedText is part of the condition message of a manifest that the executor may not apply.
	refusedText = "not allowed to apply the resource"
)

// auditOf returns an audit policy that logs the requests of one user. An impersonated request
// is logged under the user that sends it.
func auditOf(user string) string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived", "ResponseStarted"]
rules:
- level: Metadata
  users: ["` + user + `"]
- level: None
`
}

// executing is a fleet with the audit logs of the hub and of the managed cluster, which
// contain every request of the agent.
type executing struct {
	*fleet
	hubLog, managedLog string
}

func startExecuting(b *testing.B) *executing {
	b.Helper()
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, b.Name())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	inner, err := localhub.NewFleet(localhub.FleetOptions{
		Dir: dir, Clusters: []string{cluster1},
		HubAuditPolicy:     auditOf(localhub.AgentUser(cluster1)),
		ManagedAuditPolicy: auditOf("system:serviceaccount:" + localhub.AgentNamespace + ":agent"),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := inner.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := inner.Start(ctx); err != nil {
		b.Fatal(err)
	}
	e := &executing{fleet: &fleet{Fleet: inner}, hubLog: inner.Hub.AuditLog(), managedLog: inner.Members[0].AuditLog()}
	if e.ocm, err = versioned.NewForConfig(inner.Hub.AdminConfig()); err != nil {
		b.Fatal(err)
	}
	if e.managed, err = kubernetes.NewForConfig(inner.Members[0].AdminConfig()); err != nil {
		b.Fatal(err)
	}
	if _, err := e.managed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: executorNamespace}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return e
}

// requests counts the requests of the agent in a part of an audit log, by verb and resource.
type requests map[string]int

func (r requests) total() int {
	total := 0
	for _, count := range r {
		total += count
	}
	return total
}

func (r requests) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, r[what]))
	}
	return strings.Join(parts, ", ")
}

// read counts the requests in an audit log after an offset, without watches. It returns the
// offset at which the log ends.
func read(b *testing.B, path string, offset int64) (requests, int64) {
	b.Helper()
	found := requests{}
	events, end, err := localhub.ReadAudit(path, offset)
	if err != nil {
		b.Fatal(err)
	}
	for _, event := range events {
		if event.Verb == "watch" {
			continue
		}
		found[asked(&event)]++
	}
	return found, end
}

// asked returns the verb and the resource of a request.
func asked(event *auditv1.Event) string {
	ref := event.ObjectRef
	if ref == nil {
		return event.Verb + " " + event.RequestURI
	}
	return strings.TrimSuffix(event.Verb+" "+ref.Resource+"/"+ref.Subresource, "/")
}

const reviewing = "create subjectaccessreviews"

// executorRole and executorBinding return the RBAC of one executor, in the namespace of all
// executors.
func executorRole(name string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch", "delete"}},
	}}
}

func executorBinding(name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: executorNamespace, Name: name}},
	}
}

func (e *executing) grant(ctx context.Context, name string) error {
	if _, err := e.managed.RbacV1().Roles(executorNamespace).Create(ctx, executorRole(name), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := e.managed.RbacV1().RoleBindings(executorNamespace).Create(ctx, executorBinding(name), metav1.CreateOptions{})
	return err
}

// executedWork returns a ManifestWork of ConfigMaps that contain a value. It has an executor
// unless the name of the executor is empty.
func executedWork(name, executor string, manifests int, value string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name}}
	for i := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"%s-%d"},"data":{"value":%q}}`, executorNamespace, name, i, value),
		}})
	}
	if executor != "" {
		work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: executorNamespace, Name: executor},
		}}
	}
	return work
}

// workWatch records the times at which ManifestWorks are reported as applied and as refused,
// and at which their ConfigMaps are written.
type workWatch struct {
	*arrivals
	refused, written map[string]time.Time
	values           map[string]string
	writes           map[string]int
}

func (e *executing) watch(b *testing.B) *workWatch {
	b.Helper()
	w := &workWatch{arrivals: newArrivals(), refused: map[string]time.Time{}, written: map[string]time.Time{}, values: map[string]string{}, writes: map[string]int{}}
	onHub := externalversions.NewSharedInformerFactoryWithOptions(e.ocm, 0, externalversions.WithNamespace(cluster1))
	onCluster := informers.NewSharedInformerFactoryWithOptions(e.managed, 0, informers.WithNamespace(executorNamespace))
	for informer, note := range map[cache.SharedIndexInformer]func(any){
		onHub.Work().V1().ManifestWorks().Informer():  w.noteWork,
		onCluster.Core().V1().ConfigMaps().Informer(): w.noteObject,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }, DeleteFunc: w.gone,
		}); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		onHub.Shutdown()
		onCluster.Shutdown()
	})
	onHub.Start(ctx.Done())
	onCluster.Start(ctx.Done())
	onHub.WaitForCacheSync(ctx.Done())
	onCluster.WaitForCacheSync(ctx.Done())
	return w
}

// change records an event and wakes all waiters.
func (w *workWatch) change(note func(now time.Time)) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	note(now)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *workWatch) noteWork(obj any) {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok {
		return
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	w.change(func(now time.Time) {
		delete(w.complete, work.Name)
		if applied != nil && applied.Status == metav1.ConditionTrue && applied.ObservedGeneration == work.Generation {
			w.complete[work.Name] = now
		}
		for _, manifest := range work.Status.ResourceStatus.Manifests {
			applied := meta.FindStatusCondition(manifest.Conditions, workv1.WorkApplied)
			if _, known := w.refused[work.Name]; !known && applied != nil && strings.Contains(applied.Message, refusedText) {
				w.refused[work.Name] = now
			}
		}
	})
}

func (w *workWatch) noteObject(obj any) {
	object, ok := obj.(*corev1.ConfigMap)
	if !ok || !strings.HasPrefix(object.Name, "bench-") {
		return
	}
	w.change(func(now time.Time) {
		w.written[object.Name], w.values[object.Name] = now, object.Data["value"]
		w.writes[object.Name]++
	})
}

func (w *workWatch) gone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	w.change(func(time.Time) {
		switch object := obj.(type) {
		case *workv1.ManifestWork:
			delete(w.complete, object.Name)
			delete(w.refused, object.Name)
		case *corev1.ConfigMap:
			delete(w.written, object.Name)
			delete(w.values, object.Name)
			delete(w.writes, object.Name)
		}
	})
}

// deleteWorks deletes all ManifestWorks, and waits until they do not exist.
func (e *executing) deleteWorks(b *testing.B) {
	b.Helper()
	ctx := context.Background()
	if err := e.ocm.WorkV1().ManifestWorks(cluster1).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		works, err := e.ocm.WorkV1().ManifestWorks(cluster1).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(works.Items) == 0, err
	}); err != nil {
		b.Fatalf("waiting until all ManifestWorks are deleted: %v", err)
	}
}

// BenchmarkExecutorOfOneWork applies a ManifestWork of 100 manifests as an executor whose
// permissions the agent has not cached. Then another client changes the objects. The benchmark
// counts the SubjectAccessReviews in the audit log of the managed cluster, and measures until
// a watch reports the ManifestWork as applied. It measures a ManifestWork without an executor
// for comparison.
func BenchmarkExecutorOfOneWork(b *testing.B) {
	e := startExecuting(b)
	w := e.watch(b)
	ctx := context.Background()
	for range b.N {
		const name = "bench-large"
		if err := e.grant(ctx, name); err != nil {
			b.Fatal(err)
		}
		apply := func(name, executor string, manifests int) time.Duration {
			started := time.Now()
			if _, err := e.ocm.WorkV1().ManifestWorks(cluster1).Create(ctx, executedWork(name, executor, manifests, "1"), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			w.wait(b, "ManifestWork "+name+" is applied", func() bool { _, ok := w.complete[name]; return ok })
			return w.complete[name].Sub(started)
		}
		// The first ManifestWork starts the watch of ConfigMaps, which all ManifestWorks share.
		apply("bench-first", "", 1)
		without := apply("bench-plain", "", manifestsOfWork)
		_, offset := read(b, e.managedLog, 0)
		with := apply(name, name, manifestsOfWork)
		cold, offset := read(b, e.managedLog, offset)

		// Each object is changed once, so the agent processes the ManifestWork about as often.
		inParallel(b, manifestsOfWork, func(i int) error {
			_, err := e.managed.CoreV1().ConfigMaps(executorNamespace).Patch(ctx, fmt.Sprintf("%s-%d", name, i), types.MergePatchType, []byte(`{"data":{"value":"changed"}}`), metav1.PatchOptions{})
			return err
		})
		w.wait(b, "all objects of "+name+" are repaired", func() bool {
			for i := range manifestsOfWork {
				if w.values[fmt.Sprintf("%s-%d", name, i)] != "1" {
					return false
				}
			}
			return true
		})
		warm, _ := read(b, e.managedLog, offset)

		b.ReportMetric(float64(cold[reviewing]), "cold-reviews")
		b.ReportMetric(float64(warm[reviewing]), "warm-reviews")
		b.ReportMetric(float64(with.Milliseconds()), "cold-ms")
		b.ReportMetric(float64(without.Milliseconds()), "no-executor-ms")
		fmt.Printf("a work of %d manifests: applied after %.0f ms without an executor, after %.0f ms with one, cold, by %d SubjectAccessReviews; repair of all its objects, warm: %d (requests: %s)\n",
			manifestsOfWork, ms(without), ms(with), cold[reviewing], warm[reviewing], warm)
		e.deleteWorks(b)
	}
}

// BenchmarkExecutorsIdle counts the requests of the agent to the hub and to the managed
// cluster in a minute in which none of many ManifestWorks with executors changes. It counts
// all requests in the audit logs except watches. It also measures the memory of the agent.
func BenchmarkExecutorsIdle(b *testing.B) {
	count := number(b, "BENCH_WORKS", 1000)
	e := startExecuting(b)
	w := e.watch(b)
	ctx := context.Background()
	for range b.N {
		executors := (count + worksPerExecutor - 1) / worksPerExecutor
		inParallel(b, executors, func(i int) error { return e.grant(ctx, fmt.Sprintf("bench-executor-%d", i)) })
		empty := resident(b, e.Members[0].Agent.PID())
		_, offset := read(b, e.managedLog, 0)
		started := time.Now()
		inParallel(b, count, func(i int) error {
			work := executedWork(fmt.Sprintf("bench-work-%d", i), fmt.Sprintf("bench-executor-%d", i/worksPerExecutor), fewManifests, "1")
			_, err := e.ocm.WorkV1().ManifestWorks(cluster1).Create(ctx, work, metav1.CreateOptions{})
			return err
		})
		w.wait(b, "all ManifestWorks are applied", func() bool { return len(w.complete) == count })
		took := time.Since(started)
		cold, managedOffset := e.quiet(b, e.managedLog, offset)
		_, hubOffset := e.quiet(b, e.hubLog, 0)
		fmt.Printf("%d works of %d manifests with %d executors: applied after %.1f s, by %d SubjectAccessReviews\n", count, fewManifests, executors, took.Seconds(), cold[reviewing])

		<-time.After(idleTime)
		onManaged, _ := read(b, e.managedLog, managedOffset)
		onHub, _ := read(b, e.hubLog, hubOffset)
		agent := resident(b, e.Members[0].Agent.PID())
		b.ReportMetric(float64(onManaged.total()), "managed-requests")
		b.ReportMetric(float64(onHub.total()), "hub-requests")
		b.ReportMetric(agent, "agent-MB")
		fmt.Printf("idle for %s: %d requests to the managed cluster (%s), %d to the hub (%s), beyond watches; agent %.0f MB resident, %.0f MB before the works\n",
			idleTime, onManaged.total(), onManaged, onHub.total(), onHub, agent, empty)
		e.deleteWorks(b)
	}
}

// quiet waits until an audit log contains no new requests for five seconds, except reviews, which the
// agent repeats. It returns the requests after an offset, and the offset at which the log ends.
func (e *executing) quiet(b *testing.B, log string, offset int64) (requests, int64) {
	b.Helper()
	const silence = 5 * time.Second
	tick := time.NewTicker(silence)
	defer tick.Stop()
	deadline := time.After(patience)
	all := requests{}
	for {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("requests of the agent in %s: %s, want five seconds without requests", patience, all)
		}
		found, end := read(b, log, offset)
		offset = end
		for what, count := range found {
			all[what] += count
		}
		delete(found, reviewing)
		if len(found) == 0 {
			return all, end
		}
	}
}

// BenchmarkExecutorGrantsAndRevocations creates ManifestWorks with executors that lack a
// permission. It measures from the response to the write of the RBAC object that grants the
// permission until a watch of the managed cluster has received the object. Then load changes
// the ManifestWork continuously, and the permission is revoked: in turn by deleting the binding,
// by editing its subjects, and by editing the role. The benchmark measures from the response
// until a watch of the hub reports the ManifestWork as refused. It also measures until the last
// write of the agent, as a watch receives it; this is 0 if no write follows the response.
func BenchmarkExecutorGrantsAndRevocations(b *testing.B) {
	count := number(b, "BENCH_REVOCATIONS", 100)
	e := startExecuting(b)
	w := e.watch(b)
	for range b.N {
		var granted, period, refused, stopped []time.Duration
		for i := range count {
			name := fmt.Sprintf("bench-revoked-%d", i)
			r := e.revocation(b, w, name, i)
			granted, period = append(granted, r.granted), append(period, r.period)
			refused, stopped = append(refused, r.refused), append(stopped, r.stopped)
		}
		report(b, "grant to the object on the managed cluster", "grant", granted)
		report(b, "from one write of the load to the next, before the revocation", "write", period)
		report(b, "revocation to the work refused, on the hub", "refusal", refused)
		report(b, "revocation to the last write", "last-write", stopped)
		e.deleteWorks(b)
	}
}

// revocation contains the durations of one revocation. period is the average time between two
// writes of the agent before it.
type revocation struct{ granted, period, refused, stopped time.Duration }

func (e *executing) revocation(b *testing.B, w *workWatch, name string, form int) revocation {
	b.Helper()
	ctx := context.Background()
	works, bindings, roles := e.ocm.WorkV1().ManifestWorks(cluster1), e.managed.RbacV1().RoleBindings(executorNamespace), e.managed.RbacV1().Roles(executorNamespace)
	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	_, err := roles.Create(ctx, executorRole(name), metav1.CreateOptions{})
	fail(err)
	_, err = works.Create(ctx, executedWork(name, name, 1, "0"), metav1.CreateOptions{})
	fail(err)
	w.wait(b, "ManifestWork "+name+" is refused", func() bool { _, ok := w.refused[name]; return ok })

	_, err = bindings.Create(ctx, executorBinding(name), metav1.CreateOptions{})
	fail(err)
	answered := time.Now()
	object := name + "-0"
	w.wait(b, "ConfigMap "+object+" exists", func() bool { _, ok := w.written[object]; return ok })
	var r revocation
	r.granted = w.written[object].Sub(answered)
	w.wait(b, "ManifestWork "+name+" is reported as applied", func() bool { _, ok := w.complete[name]; return ok })

	stop := make(chan struct{})
	var loading sync.WaitGroup
	loading.Go(func() { e.load(b, name, stop) })
	var before int
	w.wait(b, "the first write of the load is on the managed cluster", func() bool { before = w.writes[object]; return before > 1 })
	started := time.Now()
	w.wait(b, "more writes of the load are on the managed cluster", func() bool { return w.writes[object] >= before+writesBefore })
	r.period = time.Since(started) / writesBefore
	w.change(func(time.Time) { delete(w.refused, name) })
	switch form % 3 {
	case 0:
		err = bindings.Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		binding := executorBinding(name)
		binding.Subjects[0].Name = "nobody"
		_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{})
	default:
		role := executorRole(name)
		role.Rules[0].Verbs = []string{"get", "create"}
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	answered = time.Now()
	fail(err)
	w.wait(b, "ManifestWork "+name+" is refused after the revocation", func() bool { _, ok := w.refused[name]; return ok })
	r.refused = w.refused[name].Sub(answered)
	<-time.After(afterRefusal)
	close(stop)
	loading.Wait()
	w.change(func(time.Time) { r.stopped = max(0, w.written[object].Sub(answered)) })
	return r
}

// load changes the content of a ManifestWork until stop is closed.
func (e *executing) load(b *testing.B, name string, stop <-chan struct{}) {
	tick := time.NewTicker(loadPeriod)
	defer tick.Stop()
	for i := 1; ; i++ {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"workload": executedWork(name, name, 1, fmt.Sprintf("%06d", i)).Spec.Workload}})
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := e.ocm.WorkV1().ManifestWorks(cluster1).Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			b.Error(err)
			return
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
