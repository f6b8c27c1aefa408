package embedded

import (
	"context"
	"errors"
	"time"
)

const (
	// checkpointChanges is the number of changes of resources from which on a checkpoint is written.
	// Indexing as many resources takes about a second.
	checkpointChanges = 50_000
	// checkpointPause is the minimum time between checkpoints. checkpointShare is the minimum ratio
	// of the time between checkpoints to the time that the last one took.
	checkpointPause = time.Minute
	checkpointShare = 20
)

// writeCheckpoints writes checkpoints until the engine is closed.
func (e *Engine) writeCheckpoints() {
	defer e.running.Done()
	// All that was indexed when the data were loaded counts as changed.
	changed := -e.indexed
	wait := checkpointPause
	for {
		select {
		case <-e.closed:
			return
		case <-time.After(wait):
		}
		wait = checkpointPause
		if e.current.Load().changes()-changed < checkpointChanges {
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
		changed = written.changes()
		e.logger.Info("Wrote a checkpoint of the search data", "version", written.version, "duration", time.Since(start))
		wait = max(wait, checkpointShare*time.Since(start))
	}
}

// changes returns the number of changes of rows since the data were loaded.
func (s *state) changes() int {
	return int(s.nextMoved()) + int(s.firstTouched) + len(s.touched)
}

// checkpoint writes a checkpoint of the current state, and returns the state.
func (e *Engine) checkpoint() (*state, error) {
	j := &job{snapshot: &snapshot{}, done: make(chan struct{})}
	if err := e.do(context.Background(), j); err != nil {
		return nil, err
	}
	return j.snapshot.state, e.store.writeCheckpoint(j.snapshot, e.giveWay)
}
