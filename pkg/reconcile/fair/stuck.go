package fair

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxNamed is the number of items that Stuck names. The error is part of a condition.
const maxNamed = 3

// Stuck returns an error that names items from which workers do not return, or nil if there are none. It
// updates the metric, and logs each of them once. The readiness checks call it regularly.
func (q *Queue[T]) Stuck() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var named []string
	for item, at := range q.handled {
		took := time.Since(at.since)
		if took <= q.config.StuckAfter {
			continue
		}
		named = append(named, fmt.Sprintf("%v for %s", item, took.Round(time.Second)))
		if !at.logged {
			at.logged = true
			q.logger.Error(nil, "A worker does not return", "object", item, "since", took)
		}
	}
	stuckWorkers.WithLabelValues(q.config.Name).Set(float64(len(named)))
	if len(named) == 0 {
		return nil
	}
	slices.Sort(named)
	text := strings.Join(named[:min(len(named), maxNamed)], ", ")
	if more := len(named) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%d workers of the queue %s do not return from %s", len(named), q.config.Name, text)
}
