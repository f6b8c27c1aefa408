package fair

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stuck records that the worker of an item has not returned in time.
func (q *Queue[T]) stuck(item T, at *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.handled[item] != at {
		return
	}
	at.stuck = true
	stuckWorkers.WithLabelValues(q.config.Name).Inc()
	stuckTotal.WithLabelValues(q.config.Name).Inc()
	q.logger.Error(nil, "A worker does not return", "object", item, "since", time.Since(at.since))
}

// returned records that the worker of an item has returned. The caller must hold mu.
func (q *Queue[T]) returned(item T, at *entry) {
	at.watchdog.Stop()
	if at.stuck {
		stuckWorkers.WithLabelValues(q.config.Name).Dec()
		q.logger.Info("A worker that was stuck has returned", "object", item, "took", time.Since(at.since))
	}
}

// maxNamed is the number of items that Stuck names. The error is part of a condition.
const maxNamed = 3

// Stuck returns an error that names items from which workers do not return, or nil if there are none.
func (q *Queue[T]) Stuck() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var named []string
	for item, at := range q.handled {
		if at.stuck {
			named = append(named, fmt.Sprintf("%v for %s", item, time.Since(at.since).Round(time.Second)))
		}
	}
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
