package ingest

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// slots bound what is taken at a time: one report of a cluster, and a number of
// reports and of large reports in all.
type slots struct {
	maxReports, maxLarge int
	// largeBytes is from how many bytes on a report is a large one, maxHeld how many all large
	// ones may take in memory.
	largeBytes, maxHeld int64

	lock           sync.Mutex
	busy           map[string]struct{}
	reports, large int
	// held is what large reports take in memory.
	held int64
}

// slot is the right to take one report.
type slot struct {
	slots   *slots
	cluster string
	// counted is true if the slot is one of the bounded number, large if it is a large one.
	counted, large bool
	// held is what the report takes in memory, if it is a large one.
	held int64
}

// acquire returns a slot, or an error that says when to try again. A slot that is
// exempt is not counted.
func (s *slots) acquire(cluster string, exempt bool) (*slot, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, taken := s.busy[cluster]; taken {
		return nil, tooMany("another report of this cluster is being taken")
	}
	if !exempt {
		if s.reports >= s.maxReports {
			return nil, tooMany("too many reports are being taken")
		}
		s.reports++
	}
	s.busy[cluster] = struct{}{}
	return &slot{slots: s, cluster: cluster, counted: !exempt}, nil
}

// grow makes the report a large one, or returns an error that says when to try again.
func (s *slot) grow() error {
	s.slots.lock.Lock()
	defer s.slots.lock.Unlock()
	return s.growLocked()
}

// hold says how many bytes of memory the report takes, or returns an error that says when to
// try again. A report that is the only large one always may.
func (s *slot) hold(bytes int64) error {
	s.slots.lock.Lock()
	defer s.slots.lock.Unlock()
	if bytes < s.slots.largeBytes {
		return nil
	}
	if err := s.growLocked(); err != nil {
		return err
	}
	if all := s.slots.held - s.held + bytes; all > s.slots.maxHeld && s.slots.large > 1 {
		return tooMany("large reports that are being taken need too much memory together")
	}
	s.slots.held += bytes - s.held
	s.held = bytes
	return nil
}

func (s *slot) growLocked() error {
	if s.large {
		return nil
	}
	if s.slots.large >= s.slots.maxLarge {
		return tooMany("too many large reports are being taken")
	}
	s.slots.large++
	s.large = true
	return nil
}

func (s *slot) release() {
	s.slots.lock.Lock()
	defer s.slots.lock.Unlock()
	delete(s.slots.busy, s.cluster)
	if s.counted {
		s.slots.reports--
	}
	if s.large {
		s.slots.large--
		s.slots.held -= s.held
	}
}

func tooMany(message string) error {
	return apierrors.NewTooManyRequests(message, terms.RetryAfter())
}
