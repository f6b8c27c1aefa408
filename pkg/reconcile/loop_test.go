package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
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
		case <-time.After(time.Minute):
			t.Error("the loop does not end")
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

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
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
	case <-time.After(time.Minute):
		t.Fatal("a namespace waits for another")
	}
	eventually(t, "objects of the flood hang", func() bool { return hanging.Load() > 0 })
	if got := most.Load(); got > tenantWorkers {
		t.Errorf("%d workers were busy with one namespace, want %d at most", got, tenantWorkers)
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
			// It becomes urgent when all workers of the others are busy.
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
	case <-time.After(time.Minute):
		t.Error("a revocation waits for other objects")
	}
	cancel()
	q.ShutDown()
	<-ended
}

func TestFailedObjectsAreTriedAgain(t *testing.T) {
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
	eventually(t, "the third try succeeds", func() bool { return tries.Load() == 3 })
}

func TestStuck(t *testing.T) {
	if err := Stuck(); err != nil {
		t.Fatalf("without loops: %v, want nil", err)
	}
	l := &Loop{Name: t.Name(), Initial: keys("a", 1)}
	q := l.newQueue()
	watchdogs.Store(q.watchdog, nil)
	defer watchdogs.Delete(q.watchdog)
	// A limit that is over at once stands for a worker that disregards its context.
	_, end := q.watchdog.Begin(t.Context(), "a/0", 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.watchdog.Run(ctx)
	}()
	eventually(t, "the worker is found", func() bool { return Stuck() != nil })
	if err := Stuck(); err == nil || !strings.Contains(err.Error(), "TestStuck do not return from a/0") {
		t.Errorf("error = %v, want one that names the loop and the object", err)
	}
	end()
	if err := Stuck(); err != nil {
		t.Errorf("after the return: %v, want nil", err)
	}
	cancel()
	<-ended
	q.ShutDown()
}
