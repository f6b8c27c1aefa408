package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// run runs a loop until the test ends.
func run(t *testing.T, l *Loop) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(await.Patience):
			t.Error("Run() has not returned, want a return after the end of ctx")
		}
	})
}

func keys(namespace string, n int) []cache.ObjectName {
	var names []cache.ObjectName
	for i := range n {
		names = append(names, cache.ObjectName{Namespace: namespace, Name: fmt.Sprint(i)})
	}
	return names
}

func TestNamespacesShareWorkers(t *testing.T) {
	var hanging, most atomic.Int64
	done := make(chan cache.ObjectName, 10)
	l := &Loop{
		Name:    t.Name(),
		Initial: append(keys("flood", 500), keys("one", 1)...),
		Reconcile: func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			if key.Namespace == "flood" {
				most.Store(max(most.Load(), hanging.Add(1)))
				defer hanging.Add(-1)
				<-ctx.Done()
				return 0, nil
			}
			done <- key
			return 0, nil
		},
	}
	run(t, l)
	select {
	case <-done:
	case <-time.After(await.Patience):
		t.Fatal("the object of a namespace waits for the objects of another namespace, want no wait")
	}
	await.True(t, "workers are busy with objects of the namespace flood", func() bool { return hanging.Load() > 0 })
	if got := most.Load(); got > tenantWorkers {
		t.Errorf("workers busy with one namespace = %d, want at most %d", got, tenantWorkers)
	}
}

func TestUrgentObjectsHaveWorkers(t *testing.T) {
	var hanging atomic.Int64
	var initial []cache.ObjectName
	for i := range 3 * workers {
		initial = append(initial, keys(fmt.Sprintf("flood%d", i), 2)...)
	}
	revoked := make(chan struct{})
	l := &Loop{
		Name:    t.Name(),
		Initial: append(initial, cache.ObjectName{Namespace: "flood0", Name: "revoked"}),
		Urgent: func(key cache.ObjectName) bool {
			// The object becomes urgent when all ordinary workers are busy.
			return key.Name == "revoked" && hanging.Load() == workers
		},
	}
	again := make(chan struct{})
	l.Reconcile = func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		if key.Name == "revoked" {
			close(revoked)
			return 0, nil
		}
		if hanging.Add(1) == workers {
			close(again)
		}
		<-ctx.Done()
		return 0, nil
	}
	q := l.newQueue()
	for _, key := range l.Initial {
		q.Add(key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.serve(ctx, q)
	}()
	<-again
	q.Add(cache.ObjectName{Namespace: "flood0", Name: "revoked"})
	select {
	case <-revoked:
	case <-time.After(await.Patience):
		t.Error("the urgent object waits for other objects, want no wait")
	}
	cancel()
	q.ShutDown()
	<-ended
}

func TestFailedObjectsAreRetried(t *testing.T) {
	var tries atomic.Int64
	run(t, &Loop{
		Name:    t.Name(),
		Initial: keys("a", 1),
		Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
			if tries.Add(1) < 3 {
				return 0, errors.New("not yet")
			}
			return 0, nil
		},
	})
	await.True(t, "the third attempt succeeds", func() bool { return tries.Load() == 3 })
}

func TestStuck(t *testing.T) {
	if err := Stuck(); err != nil {
		t.Fatalf("Stuck() without loops = %v, want nil", err)
	}
	returns := make(chan struct{})
	run(t, &Loop{Name: t.Name(), Initial: keys("a", 1), StuckTimeout: time.Millisecond, Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
		<-returns
		return 0, nil
	}})
	await.True(t, "Stuck() returns an error", func() bool { return Stuck() != nil })
	if err := Stuck(); err == nil || !strings.Contains(err.Error(), "TestStuck do not return from a/0") {
		t.Errorf("Stuck() = %v, want an error that names the loop and the object", err)
	}
	close(returns)
	await.True(t, "Stuck() returns nil after the return", func() bool { return Stuck() == nil })
}

// TestHangingWorkerIsReported checks that a worker has a context of 30 seconds, and is reported if it has not returned after
// 60, by Stuck only if the loop is not dispensable.
func TestHangingWorkerIsReported(t *testing.T) {
	for _, dispensable := range []bool{false, true} {
		t.Run(fmt.Sprintf("dispensable=%t", dispensable), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkHangingWorker(t, dispensable) })
		})
	}
}

func checkHangingWorker(t *testing.T, dispensable bool) {
	began, returns := time.Now(), make(chan struct{})
	l := &Loop{Name: t.Name(), Initial: keys("a", 1), Dispensable: dispensable, Reconcile: func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
		<-ctx.Done()
		if after := time.Since(began); after != 30*time.Second {
			t.Errorf("the context of a worker ended after %s, want 30s", after)
		}
		<-returns
		return 0, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	time.Sleep(59 * time.Second)
	q := l.queue.Load()
	if err := q.lanes.Stuck(); err != nil {
		t.Errorf("Stuck() after 59s = %v, want nil", err)
	}
	time.Sleep(3 * time.Second)
	if err := q.lanes.Stuck(); err == nil {
		t.Error("Stuck() after 62s = nil, want an error")
	}
	if err := Stuck(); (err == nil) != dispensable {
		t.Errorf("Stuck() of all loops after 62s = %v, want an error if the loop is not dispensable", err)
	}
	close(returns)
	synctest.Wait()
	cancel()
	running.Wait()
}

// TestRequeueAfterKeepsTheBackoff checks that RequeueAfter is not a failure, and keeps the count of
// failures.
func TestRequeueAfterKeepsTheBackoff(t *testing.T) {
	key := keys("a", 1)[0]
	var calls atomic.Int64
	var failures []int
	l := &Loop{Name: t.Name(), Initial: []cache.ObjectName{key}, FirstRetry: time.Millisecond}
	l.Reconcile = func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
		failures = append(failures, l.queue.Load().backoff.NumRequeues(key))
		switch calls.Add(1) {
		case 1:
			return 0, errors.New("no")
		case 2:
			return 0, RequeueAfter(time.Millisecond)
		case 3:
			return time.Millisecond, nil
		}
		return 0, nil
	}
	run(t, l)
	await.True(t, "Reconcile is called four times", func() bool { return calls.Load() == 4 && l.Len() == 0 })
	if want := []int{0, 1, 1, 0}; !slices.Equal(failures, want) {
		t.Errorf("failures before each call = %v, want %v", failures, want)
	}
}

func TestRetryDecidesTheDelay(t *testing.T) {
	var calls atomic.Int64
	l := &Loop{Name: t.Name(), Initial: keys("a", 2), FirstRetry: time.Hour}
	l.Retry = func(key cache.ObjectName, err error, delay time.Duration) time.Duration {
		if err == nil || delay < 40*time.Second || delay > time.Minute {
			t.Errorf("Retry(%s, %v, %s), want an error and two thirds of LastRetry up to LastRetry", key, err, delay)
		}
		if key.Name == "1" {
			return -1
		}
		return 0
	}
	l.Reconcile = func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		if key.Name == "1" || calls.Add(1) < 3 {
			return 0, errors.New("no")
		}
		return 0, nil
	}
	run(t, l)
	await.True(t, "Reconcile is called three times", func() bool { return calls.Load() == 3 })
	if got := state(l, cache.ObjectName{Namespace: "a", Name: "1"}); got != StateFailed {
		t.Errorf("state of an object that is not retried = %q, want %q", got, StateFailed)
	}
	await.True(t, "the reconciled object has no state", func() bool { return state(l, cache.ObjectName{Namespace: "a", Name: "0"}) == "" })
}

func state(l *Loop, key cache.ObjectName) string {
	value, _ := l.states.Load(key)
	text, _ := value.(string)
	return text
}

func TestAddOutsideOfRunHasNoEffect(t *testing.T) {
	l := &Loop{Name: t.Name()}
	l.Add(keys("a", 1)[0])
	l.Forget(keys("a", 1)[0])
	if got := l.Len(); got != 0 {
		t.Errorf("Len() = %d, want 0", got)
	}
}

// TestReportedErrorsAreNoErrorsInTheLog checks that a failure that the status of an object reports is logged as information.
func TestReportedErrorsAreNoErrorsInTheLog(t *testing.T) {
	l := &Loop{Name: t.Name()}
	q := l.newQueue()
	defer q.ShutDown()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	l.retry(logger, q, cache.ObjectName{Name: "a"}, Reported(errors.New("no such kind")))
	l.retry(logger, q, cache.ObjectName{Name: "b"}, errors.Join(errors.New("no connection"), Reported(errors.New("no such kind"))))
	if len(lines) != 2 || !strings.Contains(lines[0], `"level"=0`) || strings.Contains(lines[1], `"level"=`) {
		t.Errorf("retry() logs %q, want information about the reported failure, and an error about the other", lines)
	}
}
