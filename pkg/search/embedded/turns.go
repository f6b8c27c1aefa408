package embedded

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns bounds the number of long questions that are answered concurrently, so that one core stays
// free for other work. Waiting callers take turns, regardless of the number of their questions.
type turns struct {
	mu   sync.Mutex
	free int
	// waiting contains the questions of each waiting caller. callers is the order of the callers.
	waiting map[string][]chan struct{}
	callers []string
}

// newTurns returns turns. It leaves one core free if there are several.
func newTurns() *turns {
	return &turns{free: max(1, runtime.GOMAXPROCS(0)-1), waiting: map[string][]chan struct{}{}}
}

// take waits for the turn of a caller's question. The caller must call end when the question is
// answered.
func (t *turns) take(ctx context.Context, caller string) (end func(), err error) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return t.end, nil
	}
	granted := make(chan struct{})
	if len(t.waiting[caller]) == 0 {
		t.callers = append(t.callers, caller)
	}
	t.waiting[caller] = append(t.waiting[caller], granted)
	t.mu.Unlock()
	select {
	case <-granted:
		return t.end, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-granted:
		t.nextLocked()
	default:
		t.leaveLocked(caller, granted)
	}
	return nil, ctx.Err()
}

// end passes the turn to the next caller.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextLocked()
}

func (t *turns) nextLocked() {
	if len(t.callers) == 0 {
		t.free++
		return
	}
	caller := t.callers[0]
	t.callers = t.callers[1:]
	queue := t.waiting[caller]
	close(queue[0])
	if len(queue) == 1 {
		delete(t.waiting, caller)
		return
	}
	t.waiting[caller] = queue[1:]
	t.callers = append(t.callers, caller)
}

// leaveLocked removes a question that no longer waits.
func (t *turns) leaveLocked(caller string, granted chan struct{}) {
	rest := slices.DeleteFunc(t.waiting[caller], func(other chan struct{}) bool { return other == granted })
	if t.waiting[caller] = rest; len(rest) > 0 {
		return
	}
	delete(t.waiting, caller)
	t.callers = slices.DeleteFunc(t.callers, func(other string) bool { return other == caller })
}
