package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const (
	// patience bounds the wait of a benchmark until all objects are delivered or deleted.
	patience = 5 * time.Minute
	// bindings is the number of bindings of each ClusterPermission of the benchmarks.
	bindings = 2
	creators = 16
)

func permission(name string) *rbacv1alpha1.ClusterPermission {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "update"}}}
	subject := &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "developers"}
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: rules},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: subject},
			Roles:              &[]rbacv1alpha1.Role{{Namespace: "default", Rules: rules}},
			RoleBindings:       &[]rbacv1alpha1.RoleBinding{{Namespace: "default", RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: subject}},
		},
	}
}

// arrivals records the time at which all bindings of a ClusterPermission exist on the managed
// cluster: the time of the last watch event for one of them.
type arrivals struct {
	mu       sync.Mutex
	seen     map[string]int
	complete map[string]time.Time
	changed  chan struct{} // closed and replaced with each change
}

func newArrivals() *arrivals {
	return &arrivals{seen: map[string]int{}, complete: map[string]time.Time{}, changed: make(chan struct{})}
}

func watchArrivals(b *testing.B, f *fleet) *arrivals {
	b.Helper()
	a := newArrivals()
	factory := informers.NewSharedInformerFactory(f.managed, 0)
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.note(obj, 1) },
		DeleteFunc: func(obj any) { a.note(obj, -1) },
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Rbac().V1().ClusterRoleBindings().Informer(), factory.Rbac().V1().RoleBindings().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return a
}

func (a *arrivals) note(obj any, change int) {
	now := time.Now()
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	object, ok := obj.(metav1.Object)
	if !ok || !strings.HasPrefix(object.GetName(), "bench-") {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := object.GetName()
	switch a.seen[name] += change; a.seen[name] {
	case bindings:
		a.complete[name] = now
	case 0:
		delete(a.seen, name)
		delete(a.complete, name)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait waits until done, which is called with the lock held, returns true.
func (a *arrivals) wait(b *testing.B, what string, done func() bool) {
	b.Helper()
	deadline := time.After(patience)
	for {
		a.mu.Lock()
		ok, changed := done(), a.changed
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			b.Fatalf("waiting until %s: not true after %s", what, patience)
		}
	}
}

func post(b *testing.B, f *fleet, name string) {
	if _, err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Create(context.Background(), permission(name), metav1.CreateOptions{}); err != nil {
		b.Error(err)
	}
}

// removeAll deletes every ClusterPermission and waits until all bindings are deleted. It returns
// how long this takes.
func removeAll(b *testing.B, f *fleet, a *arrivals) time.Duration {
	b.Helper()
	started := time.Now()
	if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	a.wait(b, "all bindings are deleted", func() bool { return len(a.seen) == 0 })
	return time.Since(started)
}

// percentile returns the p-th percentile of sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func report(b *testing.B, what, unit string, figures []time.Duration) {
	b.Helper()
	slices.Sort(figures)
	line := fmt.Sprintf("%s (%d):", what, len(figures))
	for _, p := range []int{50, 90, 99, 100} {
		ms := float64(percentile(figures, p).Microseconds()) / 1000
		b.ReportMetric(ms, fmt.Sprintf("%s-p%d-ms", unit, p))
		line += fmt.Sprintf(" p%d %.1f ms", p, ms)
	}
	fmt.Println(line)
}

// BenchmarkOneAfterAnother creates ClusterPermissions through the hub, each after the
// previous one is on the managed cluster. It measures from before the request until a
// watch of the managed cluster has received both bindings.
func BenchmarkOneAfterAnother(b *testing.B) {
	f, count := running(b), number(b, "BENCH_COUNT", 200)
	a := watchArrivals(b, f)
	for range b.N {
		var delivered, posted []time.Duration
		for i := range count {
			name := fmt.Sprintf("bench-one-%d", i)
			started := time.Now()
			post(b, f, name)
			posted = append(posted, time.Since(started))
			a.wait(b, "ClusterPermission "+name+" is delivered", func() bool { _, ok := a.complete[name]; return ok })
			delivered = append(delivered, a.complete[name].Sub(started))
		}
		report(b, "create to binding on the managed cluster, one after another", "delivery", delivered)
		report(b, "POST of a ClusterPermission through the hub", "post", posted)
		fmt.Printf("%d deleted at once, gone from the managed cluster after %.2f s\n", count, removeAll(b, f, a).Seconds())
	}
}

// BenchmarkBackToBack measures the same, but creates each ClusterPermission without
// waiting for the delivery of the previous one.
func BenchmarkBackToBack(b *testing.B) {
	f, count := running(b), number(b, "BENCH_COUNT", 200)
	a := watchArrivals(b, f)
	for range b.N {
		started := make([]time.Time, count)
		for i := range count {
			started[i] = time.Now()
			post(b, f, fmt.Sprintf("bench-next-%d", i))
		}
		a.wait(b, "all ClusterPermissions are delivered", func() bool { return len(a.complete) == count })
		var delivered []time.Duration
		for i := range count {
			delivered = append(delivered, a.complete[fmt.Sprintf("bench-next-%d", i)].Sub(started[i]))
		}
		report(b, "create to binding on the managed cluster, back to back", "delivery", delivered)
		removeAll(b, f, a)
	}
}

// BenchmarkAllAtOnce creates all ClusterPermissions concurrently and measures
// until the last one is delivered.
func BenchmarkAllAtOnce(b *testing.B) {
	f, count := running(b), number(b, "BENCH_COUNT", 200)
	a := watchArrivals(b, f)
	for range b.N {
		started := time.Now()
		var posting sync.WaitGroup
		for i := range count {
			posting.Go(func() { post(b, f, fmt.Sprintf("bench-all-%d", i)) })
		}
		posting.Wait()
		stored := time.Since(started)
		a.wait(b, "all ClusterPermissions are delivered", func() bool { return len(a.complete) == count })
		all := time.Since(started)
		b.ReportMetric(all.Seconds(), "all-delivered-s")
		fmt.Printf("%d created at once: all stored after %.2f s, all delivered after %.2f s\n", count, stored.Seconds(), all.Seconds())
		removeAll(b, f, a)
	}
}

// BenchmarkMemory measures the memory of the apiserver and the agent with many
// ClusterPermissions stored and delivered.
func BenchmarkMemory(b *testing.B) {
	f, count := running(b), number(b, "BENCH_STORED", 1000)
	a := watchArrivals(b, f)
	for range b.N {
		names := make(chan string)
		var posting sync.WaitGroup
		for range creators {
			posting.Go(func() {
				for name := range names {
					post(b, f, name)
				}
			})
		}
		started := time.Now()
		for i := range count {
			names <- fmt.Sprintf("bench-memory-%d", i)
		}
		close(names)
		posting.Wait()
		a.wait(b, "all ClusterPermissions are delivered", func() bool { return len(a.complete) == count })
		delivered := time.Since(started)
		server, agent := resident(b, f.Server.PID()), resident(b, f.Members[0].Agent.PID())
		b.ReportMetric(server, "apiserver-MB")
		b.ReportMetric(agent, "agent-MB")
		fmt.Printf("%d ClusterPermissions, delivered in %.1f s: apiserver %.0f MB, agent %.0f MB resident\n", count, delivered.Seconds(), server, agent)
		removeAll(b, f, a)
	}
}

// resident returns the resident memory of a process in MB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	mb, err := residentMemory(pid)
	if errors.Is(err, fs.ErrNotExist) {
		b.Skipf("reading the resident memory requires /proc: %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
	return mb
}

// residentMemory returns the resident memory of a process in MB.
func residentMemory(pid int) (float64, error) { return memoryOf(pid, "VmRSS") }

// memoryOf returns a part of the memory of a process in MiB: VmRSS, RssAnon or RssFile.
func memoryOf(pid int, part string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, part+":"); ok {
			kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kilobytes) / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, part)
}
