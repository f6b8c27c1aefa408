package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// State is the state of one object that the agent keeps in memory between passes.
type State struct {
	// Applied is true if the object was applied.
	Applied bool
	// UID is the UID of the object when it was applied.
	UID types.UID
	// Borrowed is true if the object exists and the ManifestWork did not create it. It is set only
	// if the ManifestWork is guarded or names an executor.
	Borrowed bool
	// settled is the content that the server returned for the manifest.
	settled string
	// fields is the hash of the fields that the manager of server-side apply owned after the last apply.
	fields string
	// repairs is the number of writes over other writers. lastRepair is the time of the last one.
	repairs    int
	lastRepair time.Time
}

const (
	// freeRepairs is the number of repairs of one object without delay.
	freeRepairs      = 5
	firstRepairDelay = 250 * time.Millisecond
	maxRepairDelay   = 5 * time.Minute
	// repairMemory is the additional time without changes by other writers after which the count of
	// repairs is reset.
	repairMemory = 30 * time.Second
)

var driftRepairs = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem: "work_agent", Name: "drift_repairs_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes that undid changes of other writers to applied objects.",
})

func init() { legacyregistry.MustRegister(driftRepairs) }

// HeldBackError is the error of a repair that is delayed because another writer changes the
// object repeatedly.
type HeldBackError struct{ Until time.Time }

func (e *HeldBackError) Error() string {
	return "another writer changes the object repeatedly; the next repair is not before " + e.Until.UTC().Format(time.RFC3339)
}

// delay returns the time after the last repair in which the object is not repaired again. It grows with the
// number of repairs, so that two writers that disagree do not overwrite each other endlessly.
func (s *State) delay() time.Duration {
	if s.repairs < freeRepairs {
		return 0
	}
	return min(firstRepairDelay<<min(s.repairs-freeRepairs, 20), maxRepairDelay)
}

// holdBack returns a HeldBackError if the object must not be repaired now.
func (s *State) holdBack(now time.Time) error {
	if until := s.lastRepair.Add(s.delay()); now.Before(until) {
		return &HeldBackError{Until: until}
	}
	return nil
}

// repaired counts a write over another writer. A write that the cluster refused undoes no change, and does
// not count.
func (s *State) repaired(now time.Time) {
	if !s.Applied {
		return
	}
	if now.Sub(s.lastRepair) > 2*s.delay()+repairMemory {
		s.repairs = 0
	}
	s.repairs++
	s.lastRepair = now
	driftRepairs.Inc()
}
