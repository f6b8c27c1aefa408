package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// change is a change of one row, with the data before and after the change.
type change struct {
	version       uint64
	cluster       uint32
	hub           bool
	before, after string
}

// changeLog contains the last changes. The numbers in their data are not reused as long as the changes are in the log.
type changeLog struct {
	limit int

	mu sync.Mutex
	// changes are the changes after the version since, in the order of versions.
	changes []change
	since   uint64
	state   *state
	// published is closed and replaced with each version.
	published chan struct{}
}

// publish makes a state the current one, and adds the changes up to it. It returns the oldest version
// whose changes are in the log. Both happen at once: a caller that has read the current state may
// request the changes after it immediately.
func (l *changeLog) publish(current *atomic.Pointer[state], s *state, changes []change) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	current.Store(s)
	l.changes = append(l.changes, changes...)
	if excess := len(l.changes) - l.limit; excess > 0 {
		// The changes of a version are kept or removed together.
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

// reset removes all changes.
func (l *changeLog) reset(s *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes, l.since, l.state = nil, s.version, s
	close(l.published)
	l.published = make(chan struct{})
}

// after returns a copy of at most limit changes after a position. It also returns the current version, the state to
// which their data refer, and a channel that is closed when there are more changes.
func (l *changeLog) after(position search.Position, limit int) ([]change, uint64, *state, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	version := position.Version
	if version < l.since || version > l.state.version {
		return nil, 0, nil, nil, fmt.Errorf("changes after version %d: %w", version, search.ErrExpired)
	}
	first, _ := slices.BinarySearchFunc(l.changes, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	pending := l.changes[min(first+position.Part, len(l.changes)):]
	return slices.Clone(pending[:min(len(pending), limit)]), l.state.version, l.state, l.published, nil
}

// Changes implements search.Engine.
func (e *Engine) Changes(ctx context.Context, after search.Position, limit, bytes int) ([]search.Change, search.Position, error) {
	for {
		// The change after the last one decides the new position.
		changes, version, s, published, err := e.log.after(after, max(1, limit)+1)
		if err != nil {
			return nil, search.Position{}, err
		}
		if len(changes) > 0 {
			result, position := s.decodedChanges(changes, after, max(1, limit), bytes)
			if len(result) == len(changes) {
				position = search.Position{Version: version}
			}
			return result, position, nil
		}
		select {
		case <-published:
		case <-ctx.Done():
			return nil, search.Position{Version: version}, nil
		case <-e.closed:
			return nil, search.Position{}, errClosed
		}
	}
}

// decodedChanges returns changes after a position with decoded properties, and the position of the next one.
func (s *state) decodedChanges(from []change, position search.Position, limit, bytes int) ([]search.Change, search.Position) {
	result := make([]search.Change, 0, min(len(from), limit))
	for i := range from {
		if at := from[i].version - 1; at != position.Version {
			position = search.Position{Version: at}
		}
		if len(result) == limit || bytes <= 0 {
			break
		}
		change, texts := s.change(&from[i])
		result = append(result, change)
		bytes -= change.Bytes + texts
		position.Part++
	}
	return result, position
}

// change returns a change with decoded properties, and the size of their texts.
func (s *state) change(c *change) (search.Change, int) {
	name := s.clusters[c.cluster].name
	result := search.Change{Version: c.version, Cluster: name, Hub: c.hub}
	texts := 0
	if c.before != "" {
		result.UID = string(appendUIDText(nil, name, c.before))
		_, result.Before = splitInternal(s.decoded(c.before))
	}
	if c.after != "" {
		result.UID = string(appendUIDText(nil, name, c.after))
		result.Internal, result.After = splitInternal(s.decoded(c.after))
	}
	for _, properties := range []query.Properties{result.Before, result.After, result.Internal} {
		result.Bytes += properties.Bytes()
		texts += properties.TextBytes()
	}
	return result, texts
}
