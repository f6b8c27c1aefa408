package ingest

import (
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// slots bound what is taken at a time: one report of a cluster, and a number of
// reports and of large reports in all.
type slots struct {
	maxReports, maxLarge int

	lock           sync.Mutex
	busy           map[string]struct{}
	reports, large int
}

// slot is the right to take one report.
type slot struct {
	slots   *slots
	cluster string
	// counted is true if the slot is one of the bounded number, large if it is a large one.
	counted, large bool
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
	}
}

func tooMany(message string) error {
	return apierrors.NewTooManyRequests(message, retryAfter())
}

// retryAfter is after how many seconds to try again; it varies, so that clusters
// that were refused together do not come back together.
func retryAfter() int {
	return int(math.Ceil(wait.Jitter(2*time.Second, 3).Seconds()))
}
