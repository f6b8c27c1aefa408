package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func watchOf(q query.Query) *run {
	return &run{Config: Config{Query: q, Now: time.Now}, terms: termsOf(&q), sent: newSentItems(share{})}
}

// TestEndedWatchesReadNoChanges checks that a watch whose client has left does not match the rest of a batch.
func TestEndedWatchesReadNoChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := watchOf(query.Query{Keywords: []string{"absent"}})
	matched := 0
	r.Now = func() time.Time {
		if matched++; matched == 3 {
			cancel()
		}
		return time.Now()
	}
	b := batch{changes: make([]search.Change, maxChanges)}
	for i := range b.changes {
		b.changes[i] = search.Change{Version: 1, After: query.Properties{textProperty(query.Name, "web")}}
	}
	if err := r.apply(ctx, b); !errors.Is(err, context.Canceled) || matched != 3 {
		t.Errorf("apply() = %v after %d changes, want %v after 3", err, matched, context.Canceled)
	}
}

// TestLongMatchesTakeTurns checks that long matches wait while others run, and short ones do not.
func TestLongMatchesTakeTurns(t *testing.T) {
	for range cap(turns) {
		turns <- struct{}{}
	}
	r := watchOf(query.Query{Keywords: []string{"a", "b"}, Filters: []query.Filter{{Property: "x", Comparisons: make([]query.Comparison, 14)}}})
	short, long := textProperty("x", "ab"), textProperty("x", strings.Repeat("a", longMatch/16))
	if _, err := r.matches(t.Context(), "east", query.Properties{short}); err != nil {
		t.Errorf("error of a short match = %v, want nil", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.matches(ended, "east", query.Properties{long}); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a long match without a turn = %v, want %v", err, context.Canceled)
	}
	for range cap(turns) {
		<-turns
	}
	for range 2 * cap(turns) {
		if _, err := r.matches(t.Context(), "east", query.Properties{long}); err != nil {
			t.Errorf("error of a long match = %v, want nil", err)
		}
	}
}
