package embedded

import (
	"context"
	"slices"
	"testing"
)

// waits starts a question that waits for its turn. It returns when the question is in the queue.
func waits(t *testing.T, turns *turns, ctx context.Context, caller string, granted chan<- string) {
	t.Helper()
	turns.mu.Lock()
	before := len(turns.waiting[caller])
	turns.mu.Unlock()
	go func() {
		if _, err := turns.take(ctx, caller); err != nil {
			caller += " gave up"
		}
		granted <- caller
	}()
	for queued := false; !queued; {
		turns.mu.Lock()
		queued = len(turns.waiting[caller]) > before
		turns.mu.Unlock()
	}
}

// TestTurnsAreFair queues ten questions of one caller before one question each of two other
// callers. It checks that the others wait for one question of the first caller, not for ten.
func TestTurnsAreFair(t *testing.T) {
	turns := newTurns()
	turns.free = 1
	end, err := turns.take(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan string)
	for range 10 {
		waits(t, turns, t.Context(), "first", granted)
	}
	waits(t, turns, t.Context(), "second", granted)
	waits(t, turns, t.Context(), "third", granted)
	var got []string
	for range 12 {
		end()
		got = append(got, <-granted)
	}
	want := append([]string{"first", "second", "third"}, slices.Repeat([]string{"first"}, 9)...)
	if !slices.Equal(got, want) {
		t.Errorf("turns = %q, want %q", got, want)
	}
	end()
	if turns.free != 1 || len(turns.waiting) != 0 || len(turns.callers) != 0 {
		t.Errorf("turns at the end: free = %d, waiting = %v, callers = %v, want 1 free and none waiting", turns.free, turns.waiting, turns.callers)
	}
}

// TestTurnsOfCancelledCallers cancels requests while they wait. It checks that no other caller
// loses a turn.
func TestTurnsOfCancelledCallers(t *testing.T) {
	turns := newTurns()
	turns.free = 1
	end, err := turns.take(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan string)
	leaving, leave := context.WithCancel(t.Context())
	waits(t, turns, leaving, "second", granted)
	waits(t, turns, t.Context(), "second", granted)
	waits(t, turns, leaving, "third", granted)
	leave()
	gone := []string{<-granted, <-granted}
	slices.Sort(gone)
	if want := []string{"second gave up", "third gave up"}; !slices.Equal(gone, want) {
		t.Errorf("cancelled = %q, want %q", gone, want)
	}
	end()
	if got := <-granted; got != "second" {
		t.Errorf("caller of the next turn = %q, want second", got)
	}
	end()
	if turns.free != 1 {
		t.Errorf("free turns = %d, want 1", turns.free)
	}
}
