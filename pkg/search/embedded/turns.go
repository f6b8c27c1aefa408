package embedded

import (
	"context"
	"runtime"
	"sync"
)

// turns let a bounded number of long questions be answered at a time, so that a core stays
// free for everything else. Callers who wait have their turn one after the other, whatever the number of
// their questions.
type turns struct {
	mu   sync.Mutex
	free int
	// waiting are the questions of each caller that has some, and callers their order.
	waiting map[string][]chan struct{}
	callers []string
}

// newTurns leaves one core to others where there is more than one.
func newTurns() *turns {
	return &turns{free: max(1, runtime.GOMAXPROCS(0)-1), waiting: map[string][]chan struct{}{}}
}

// take waits for the turn of a caller's question. It returns what ends the turn.
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

// end gives the turn to the next caller.
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

// leaveLocked takes a question out that nobody waits for any more.
func (t *turns) leaveLocked(caller string, granted chan struct{}) {
	queue := t.waiting[caller]
	for i := range queue {
		if queue[i] != granted {
			continue
		}
		queue = append(append([]chan struct{}{}, queue[:i]...), queue[i+1:]...)
		break
	}
	if len(queue) > 0 {
		t.waiting[caller] = queue
		return
	}
	delete(t.waiting, caller)
	for i := range t.callers {
		if t.callers[i] == caller {
			t.callers = append(append([]string{}, t.callers[:i]...), t.callers[i+1:]...)
			return
		}
	}
}
