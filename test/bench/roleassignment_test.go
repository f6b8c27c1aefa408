package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// getPause is the interval of the GET requests that are measured.
	getPause = 5 * time.Millisecond
	// quietTime is the time without a write after which the server is idle.
	quietTime = 20 * time.Second
	// appliers is the number of status reports that the simulated agents send in parallel.
	appliers = 8
)

// assignmentHub is a hub with clusters, whose agents are simulated.
type assignmentHub struct {
	*localhub.Fleet
	// direct sends requests of an administrator directly to the server.
	direct *versioned.Clientset

	mu sync.Mutex
	// permissions and works are the clusters with a ClusterPermission and with a ManifestWork.
	permissions, works map[string]bool
	changed            chan struct{} // closed and replaced with each change
}

// BenchmarkRoleAssignments writes a MulticlusterRoleAssignment for all clusters of a set and deletes it. It measures the
// time until all ClusterPermissions and ManifestWorks exist and until all are deleted, GET requests meanwhile, and the
// writes of an idle server and of a restart. The simulated agents report each ManifestWork as applied.
func BenchmarkRoleAssignments(b *testing.B) {
	count := number(b, "BENCH_CLUSTERS", 1000)
	h := startAssignmentHub(b, count)
	for range b.N {
		idle := h.gets(b, func(ctx context.Context) { <-ctx.Done() }, quietTime)
		report(b, "GET of a ManagedCluster, idle", "idle", idle)

		var written, applied time.Duration
		used := processorTime(b, h.Server.PID())
		busy := h.gets(b, func(ctx context.Context) {
			started := time.Now()
			h.create(b)
			h.await(b, "all ClusterPermissions exist", func() bool { return len(h.permissions) == count })
			written = time.Since(started)
			h.await(b, "all ManifestWorks exist", func() bool { return len(h.works) == count })
			h.ready(b, count)
			applied = time.Since(started)
		}, patience)
		used = processorTime(b, h.Server.PID()) - used
		fmt.Printf("%d clusters: ClusterPermissions written after %.1f s, status reports all clusters after %.1f s, CPU time of the server %.1f s\n",
			count, written.Seconds(), applied.Seconds(), used.Seconds())
		report(b, "GET of a ManagedCluster, while the grants are written and applied", "grant", busy)
		b.ReportMetric(written.Seconds(), "written-s")

		h.stays(b, "idle", func() {})
		h.stays(b, "restart", func() {
			ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
			defer cancel()
			if err := h.Server.Restart(ctx); err != nil {
				b.Fatal(err)
			}
		})

		var revoked time.Duration
		used = processorTime(b, h.Server.PID())
		busy = h.gets(b, func(context.Context) {
			started := time.Now()
			if err := h.direct.RbacV1beta1().MulticlusterRoleAssignments(metav1.NamespaceDefault).Delete(context.Background(), "bench", metav1.DeleteOptions{}); err != nil {
				b.Error(err)
				return
			}
			h.await(b, "all ManifestWorks are deleted", func() bool { return len(h.permissions)+len(h.works) == 0 })
			revoked = time.Since(started)
		}, patience)
		used = processorTime(b, h.Server.PID()) - used
		fmt.Printf("%d clusters: all ManifestWorks deleted %.1f s after the MulticlusterRoleAssignment, CPU time of the server %.1f s\n", count, revoked.Seconds(), used.Seconds())
		report(b, "GET of a ManagedCluster, while the grants are revoked", "revoke", busy)
		b.ReportMetric(revoked.Seconds(), "revoked-s")
	}
}

func startAssignmentHub(b *testing.B, count int) *assignmentHub {
	b.Helper()
	inner, err := localhub.NewFleet(localhub.FleetOptions{Dir: filepath.Join(benchDir(b), "fleet"),
		// Compaction would write its own key.
		APIServerArgs: []string{"--etcd-compaction-interval=0"}})
	if err != nil {
		b.Fatal(err)
	}
	inner.Server.Env = serverEnvironment(b)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	b.Cleanup(func() {
		cancel()
		running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := inner.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	if err := inner.Start(ctx); err != nil {
		b.Fatal(err)
	}
	config, err := inner.Server.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	h := &assignmentHub{Fleet: inner, permissions: map[string]bool{}, works: map[string]bool{}, changed: make(chan struct{})}
	if h.direct, err = versioned.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	started := time.Now()
	group, joining := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range count {
		group.Go(func() error {
			name := fmt.Sprintf("cluster-%04d", i)
			if err := localhub.JoinCluster(joining, inner.Hub, name); err != nil {
				return err
			}
			_, err := h.direct.ClusterV1().ManagedClusters().Patch(joining, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"bench":"yes"}}}`), metav1.PatchOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("%d clusters joined after %.0f s\n", count, time.Since(started).Seconds())
	h.follow(ctx, b, &running)
	return h
}

// benchDir returns the directory of a benchmark.
func benchDir(b *testing.B) string {
	b.Helper()
	if dir := os.Getenv("KEEP"); dir != "" {
		return dir
	}
	return b.TempDir()
}

// follow watches ClusterPermissions and ManifestWorks, and reports ManifestWorks as applied, until ctx ends.
func (h *assignmentHub) follow(ctx context.Context, b *testing.B, running *sync.WaitGroup) {
	b.Helper()
	queue := workqueue.NewTyped[string]()
	factory := externalversions.NewSharedInformerFactory(h.direct, 0)
	watch := func(informer cache.SharedIndexInformer, into map[string]bool, added func(string, any)) {
		note := func(obj any, exists bool) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			namespace := obj.(metav1.Object).GetNamespace()
			h.mu.Lock()
			if into[namespace] = true; !exists {
				delete(into, namespace)
			}
			close(h.changed)
			h.changed = make(chan struct{})
			h.mu.Unlock()
			if exists {
				added(namespace, obj)
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { note(obj, true) },
			DeleteFunc: func(obj any) { note(obj, false) },
		}); err != nil {
			b.Fatal(err)
		}
	}
	watch(factory.Rbac().V1alpha1().ClusterPermissions().Informer(), h.permissions, func(string, any) {})
	watch(factory.Work().V1().ManifestWorks().Informer(), h.works, func(cluster string, obj any) {
		if !meta.IsStatusConditionTrue(obj.(*workv1.ManifestWork).Status.Conditions, workv1.WorkApplied) {
			queue.Add(cluster)
		}
	})
	factory.Start(ctx.Done())
	for range appliers {
		running.Go(func() {
			for {
				cluster, ended := queue.Get()
				if ended {
					return
				}
				if err := framework.ReportWorks(ctx, h.direct, cluster); err != nil && ctx.Err() == nil {
					b.Logf("agent of %s: %v", cluster, err) // the ManifestWork may have been deleted
				}
				queue.Done(cluster)
			}
		})
	}
	running.Go(func() {
		<-ctx.Done()
		queue.ShutDown()
		factory.Shutdown()
	})
	factory.WaitForCacheSync(ctx.Done())
}

// create creates the MulticlusterRoleAssignment.
func (h *assignmentHub) create(b *testing.B) {
	b.Helper()
	if _, err := h.direct.RbacV1beta1().MulticlusterRoleAssignments(metav1.NamespaceDefault).Create(context.Background(), &rbacv1beta1.MulticlusterRoleAssignment{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: rbacv1beta1.MulticlusterRoleAssignmentSpec{
			Subject: rbacv1beta1.Subject{Kind: rbacv1.GroupKind, Name: "developers"},
			RoleAssignments: []rbacv1beta1.RoleAssignment{{Name: "view", ClusterRole: "view", ClusterSelection: rbacv1beta1.ClusterSelection{
				Type: rbacv1beta1.SelectLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"bench": "yes"}},
			}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// await waits until done, which is called with the lock held, returns true.
func (h *assignmentHub) await(b *testing.B, what string, done func() bool) {
	b.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		ok, changed, state := done(), h.changed, fmt.Sprintf("%d ClusterPermissions, %d ManifestWorks", len(h.permissions), len(h.works))
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			b.Fatalf("waiting until %s: %s after %s", what, state, patience)
		}
	}
}

// ready waits until the status reports that all clusters are ready.
func (h *assignmentHub) ready(b *testing.B, count int) {
	b.Helper()
	if err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		a, err := h.direct.RbacV1beta1().MulticlusterRoleAssignments(metav1.NamespaceDefault).Get(ctx, "bench", metav1.GetOptions{})
		return err == nil && a.Status.Clusters != nil && int(a.Status.Clusters.Ready) == count, err
	}); err != nil {
		b.Fatal(err)
	}
}

// gets sends one GET request after another while do runs, for at most the given time, and returns how long they take.
func (h *assignmentHub) gets(b *testing.B, do func(context.Context), most time.Duration) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	ticker := time.NewTicker(getPause)
	defer ticker.Stop()
	var times []time.Duration
	for {
		select {
		case <-done:
			return times
		case <-ticker.C:
		}
		started := time.Now()
		if _, err := h.direct.ClusterV1().ManagedClusters().Get(context.Background(), "cluster-0000", metav1.GetOptions{}); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(started))
	}
}

// revision returns the revision of the storage of the server. Each write increases it.
func (h *assignmentHub) revision(ctx context.Context) (string, error) {
	list, err := h.direct.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// stays prints whether the server writes after do, until it has written nothing for a while.
func (h *assignmentHub) stays(b *testing.B, what string, do func()) {
	b.Helper()
	quiet := func() string {
		var last string
		since := time.Now()
		if err := wait.PollUntilContextTimeout(context.Background(), time.Second, patience, true, func(ctx context.Context) (bool, error) {
			now, err := h.revision(ctx)
			if err != nil {
				return false, err
			}
			if now != last {
				last, since = now, time.Now()
			}
			return time.Since(since) > quietTime, nil
		}); err != nil {
			b.Fatal(err)
		}
		return last
	}
	before := quiet()
	do()
	after := quiet()
	writes := slices.Compare([]byte(after), []byte(before)) != 0
	fmt.Printf("%s: storage revision %s -> %s, writes = %t\n", what, before, after, writes)
}
