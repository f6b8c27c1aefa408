package ingest

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// slots bounds concurrent reports: one per cluster, and a total number of reports and of large
// reports.
type slots struct {
	maxReports, maxLarge int
	// largeBytes is the size above which a report is large. maxHeld is the maximum memory of all
	// large reports.
	largeBytes, maxHeld int64

	lock           sync.Mutex
	busy           map[string]struct{}
	reports, large int
	// held is the memory of all large reports.
	held int64
}

// slot permits the processing of one report.
type slot struct {
	slots   *slots
	cluster string
	// counted is true if the slot counts towards maxReports. large is true if it counts towards
	// maxLarge.
	counted, large bool
	// held is the memory of the report, if it is large.
	held int64
}

// acquire returns a slot, or an API error with status 429. An exempt slot does not count towards
// maxReports.
func (s *slots) acquire(cluster string, exempt bool) (*slot, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, reporting := s.busy[cluster]; reporting {
		return nil, tooMany("another report of this cluster is in progress")
	}
	if !exempt {
		if s.reports >= s.maxReports {
			return nil, tooMany("too many reports are in progress")
		}
		s.reports++
	}
	s.busy[cluster] = struct{}{}
	return &slot{slots: s, cluster: cluster, counted: !exempt}, nil
}

// grow marks the report as large, or returns an API error with status 429.
func (s *slot) grow() error {
	s.slots.lock.Lock()
	defer s.slots.lock.Unlock()
	return s.growLocked()
}

// hold sets the memory of the report, or returns an API error with status 429. It does not reject
// the only large report.
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
		return tooMany("large reports in progress use too much memory")
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
		return tooMany("too many large reports are in progress")
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
	return apierrors.NewTooManyRequests(message, serving.RetryAfter())
}
