package embedded

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// change is a change of one row, as the data that it had and has.
type change struct {
	version       uint64
	cluster       uint32
	hub           bool
	before, after string
}

// changeLog are the last changes. What their data refer to is kept as long as they are here.
type changeLog struct {
	limit int

	mu sync.Mutex
	// changes are in the order of versions, those after the version since.
	changes []change
	since   uint64
	state   *state
	// published is closed and replaced with each version.
	published chan struct{}
}

// publish adds the changes up to a state, and tells the version whose changes are the
// oldest that are kept.
func (l *changeLog) publish(s *state, changes []change) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, changes...)
	if excess := len(l.changes) - l.limit; excess > 0 {
		// A version is kept as a whole or not at all.
		l.since = l.changes[excess-1].version
		for excess < len(l.changes) && l.changes[excess].version == l.since {
			excess++
		}
		if cap(l.changes) > 2*l.limit {
			l.changes = slices.Clone(l.changes[excess:])
		} else {
			l.changes = l.changes[excess:]
		}
	}
	l.state = s
	close(l.published)
	l.published = make(chan struct{})
	return l.since + 1
}

// reset forgets all changes.
func (l *changeLog) reset(s *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes, l.since, l.state = nil, s.version, s
	close(l.published)
	l.published = make(chan struct{})
}

// after gives a copy of the changes after a version, at most so many but all those
// of one version, the version up to which these are all, the state that knows what they
// refer to, and what tells of the next.
func (l *changeLog) after(version uint64, limit int) ([]change, uint64, *state, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version < l.since || version > l.state.version {
		return nil, 0, nil, nil, fmt.Errorf("changes after version %d: %w", version, search.ErrExpired)
	}
	first, _ := slices.BinarySearchFunc(l.changes, version+1, func(c change, v uint64) int {
		if c.version < v {
			return -1
		}
		return 1
	})
	pending := l.changes[first:]
	if len(pending) == 0 {
		return nil, l.state.version, l.state, l.published, nil
	}
	end := min(len(pending), max(1, limit))
	for end < len(pending) && pending[end].version == pending[end-1].version {
		end++
	}
	upTo := l.state.version
	if end < len(pending) {
		upTo = pending[end-1].version
	}
	return slices.Clone(pending[:end]), upTo, l.state, l.published, nil
}

// Changes implements search.Engine.
func (e *Engine) Changes(ctx context.Context, after uint64, limit int) ([]search.Change, uint64, error) {
	for {
		changes, version, s, published, err := e.log.after(after, limit)
		if err != nil {
			return nil, 0, err
		}
		if len(changes) > 0 {
			result := make([]search.Change, len(changes))
			for i := range changes {
				result[i] = s.change(&changes[i])
			}
			return result, version, nil
		}
		select {
		case <-published:
		case <-ctx.Done():
			return nil, version, nil
		case <-e.closed:
			return nil, 0, errClosed
		}
	}
}

// change reads what a change refers to.
func (s *state) change(c *change) search.Change {
	name := s.clusters[c.cluster].name
	result := search.Change{Version: c.version, Cluster: name, Hub: c.hub}
	if c.before != "" {
		result.UID = string(appendUIDText(nil, name, c.before))
		result.Before = s.decoded(c.before)
	}
	if c.after != "" {
		result.UID = string(appendUIDText(nil, name, c.after))
		result.After = s.decoded(c.after)
	}
	return result
}
