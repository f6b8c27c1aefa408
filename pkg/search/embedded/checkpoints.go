package embedded

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// checkpointChanges is the number of changes of resources after which a checkpoint is written.
	// Indexing as many resources takes about a second.
	checkpointChanges = 50_000
	// checkpointPause is the minimum time between checkpoints. checkpointShare is the minimum ratio
	// of the time between checkpoints to the time that the last one took.
	checkpointPause = time.Minute
	checkpointShare = 10
)

// writeCheckpoints writes checkpoints until the engine is closed.
func (e *Engine) writeCheckpoints() {
	defer e.running.Done()
	// All that was indexed when the data were loaded counts as changed.
	changed := -e.indexed
	// mapped is the number of resources whose data are in a mapping. Each mapping keeps the space of its
	// file on disk, so a new one is used only when it contains more than twice as many.
	mapped := e.current.Load().visible - e.indexed
	wait := checkpointPause
	for {
		select {
		case <-e.closed:
			return
		case <-time.After(wait):
		}
		wait = checkpointPause
		if e.current.Load().changes-changed < checkpointChanges {
			continue
		}
		start := time.Now()
		written, err := e.checkpoint()
		if err != nil {
			if !errors.Is(err, errClosed) {
				e.logger.Error(err, "The checkpoint of the search data could not be written; the next start takes longer")
			}
			continue
		}
		changed = written.state.changes
		e.logger.Info("Wrote a checkpoint of the search data", "version", written.state.version, "duration", time.Since(start))
		if written.state.visible > 2*mapped {
			if err := e.useCheckpoint(written); err != nil {
				e.logger.Error(err, "The new checkpoint of the search data cannot be mapped into memory; the server needs more memory")
			}
			mapped = written.state.visible
		}
		wait = max(wait, checkpointShare*time.Since(start))
	}
}

// giveWay lets other goroutines run. It returns an error if the engine is closed.
func (e *Engine) giveWay() error {
	select {
	case <-e.closed:
		return errClosed
	default:
		runtime.Gosched()
		return nil
	}
}

// checkpoint writes a checkpoint of the current state, and returns what it contains.
func (e *Engine) checkpoint() (*snapshot, error) {
	j := &job{snapshot: &snapshot{}, done: make(chan struct{})}
	if err := e.do(context.Background(), j); err != nil {
		return nil, err
	}
	return j.snapshot, e.store.writeCheckpoint(j.snapshot, e.giveWay)
}

// useCheckpoint replaces the data in memory that a checkpoint contains by its mapping.
func (e *Engine) useCheckpoint(written *snapshot) error {
	r, err := e.store.openCheckpoint()
	if err != nil {
		return err
	}
	if err := e.do(context.Background(), &job{mapping: r, snapshot: written, done: make(chan struct{})}); err != nil {
		return err
	}
	// Little still refers to the previous mapping. Its pages are read again if they are required.
	before := e.store.mapping
	if e.store.mapping = r.mapping; len(before) == 0 {
		return nil
	}
	return unix.Madvise(before, unix.MADV_DONTNEED)
}

// use replaces the texts, rows, lists and bitmaps that have not changed since a checkpoint of an
// earlier state was written. Answers do not change.
func (t *transaction) use(r *checkpointReader, from *state) {
	readList[byte](r)
	counts := readList[uint64](r)
	rows, terms, trigrams, adjacency := int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3])
	readColumn[uint64](r, rows)
	readColumn[uint32](r, rows)
	readColumn[uint32](r, rows)
	r.texts(rows, func(i uint32, data string) {
		if sameMemory(from.rows.at(i).data, t.state.rows.at(i).data) {
			t.state.rows.edit(t.id, i).data = data
		}
	})
	readColumn[termInfo](r, terms)
	r.texts(terms, func(i uint32, text string) {
		if sameMemory(from.terms.at(i).text, t.state.terms.at(i).text) {
			t.state.terms.edit(t.id, i).text = text
		}
	})
	r.postings(terms, func(i uint32) *postings {
		if many := from.terms.at(i).postings.many; many != nil && many == t.state.terms.at(i).postings.many {
			return &t.state.terms.edit(t.id, i).postings
		}
		return nil
	})
	r.postings(trigrams, func(i uint32) *postings {
		if many := from.trigrams.at(i).many; many != nil && many == t.state.trigrams.at(i).many {
			return t.state.trigrams.edit(t.id, i)
		}
		return nil
	})
	for i := range uint32(from.classes.len()) {
		t.state.classes.edit(t.id, i)
	}
	for i := range uint32(from.properties.len()) {
		t.dict.editProperty(i)
	}
	for i := range from.clusters {
		t.editCluster(uint32(i))
	}
	before, now := from.sets(from), t.state.sets(from)
	r.postings(len(now), func(i uint32) *postings {
		if many := before[i].many; many != nil && many == now[i].many {
			return now[i]
		}
		return nil
	})
	r.ends(adjacency, func(i uint32, ends []end) {
		if now := t.state.adjacency.get(i); len(now) == len(ends) && &now[0] == &from.adjacency.get(i)[0] {
			*t.state.adjacency.edit(t.id, i) = ends
		}
	})
}
