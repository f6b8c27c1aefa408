package work

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// workState is what the agent remembers of one work between passes. Nothing
// depends on it but the number of requests: after a restart it is built anew.
// Only the pass over the work uses it, and there is one at a time.
type workState struct {
	// hub and record are the newest versions known, until the informers have them.
	hub    *workv1.ManifestWork
	record *workv1.AppliedManifestWork
	// items is about the objects applied under the record with owner's UID.
	owner types.UID
	items map[objectID]*itemState
	// notBefore is when the failed manifests are tried again.
	notBefore time.Time
	// waits are the objects whose lack made manifests fail, in the version of
	// that time. A change of one ends the wait for notBefore.
	waits map[objectRef]version
	// generation is the generation that notBefore is about.
	generation int64
	// executor is that of the last pass; empty if the work named none.
	executor types.NamespacedName
	// denied is whether the last pass failed for permissions of the executor, so
	// that others may end the wait for notBefore.
	denied bool
	// round counts the passes, of which all slices are one. cut is whether the last
	// slice left objects to the next.
	round int
	cut   bool
}

// itemState is what is remembered of one object of a work.
type itemState struct {
	// hash is the item that everything below is about.
	hash string
	// applied is whether it was applied.
	applied bool
	// uid is the UID under which it was applied.
	uid types.UID
	// borrowed is whether the object is on the cluster and a guarded work did
	// not make it.
	borrowed bool
	// seen is the version of the object that result is about; zero if it has to
	// be read again.
	seen version
	// result is what the last attempt came to.
	result result
	// settled is the content that the server made of the item.
	settled string
	// repairs counts writes over other writers, the last at lastRepair.
	repairs    int
	lastRepair time.Time
	// round is the round in which the object was tried last.
	round int
}

// unbound reports whether the object is a binding that was kept from its role.
func (s *itemState) unbound() bool {
	return guardReason(s.result.err) == workv1.ReasonAppliedManifestRoleNotApplied
}

const (
	// freeRepairs is how many repairs of one object are done at once.
	freeRepairs      = 5
	firstRepairDelay = 250 * time.Millisecond
	maxRepairDelay   = 5 * time.Minute
	// repairMemory is how long an object must be left alone, beyond its delay,
	// until it has all free repairs again.
	repairMemory = 30 * time.Second
)

// holdBack counts a write that repairs what another writer did, and refuses it
// if there were too many: two writers that disagree must not run in circles.
func (s *itemState) holdBack(now time.Time) error {
	if !s.applied {
		return nil
	}
	var delay time.Duration
	if s.repairs >= freeRepairs {
		delay = min(firstRepairDelay<<min(s.repairs-freeRepairs, 20), maxRepairDelay)
	}
	since := now.Sub(s.lastRepair)
	if since > 2*delay+repairMemory {
		s.repairs, delay = 0, 0
	}
	if since < delay {
		return &heldBackError{until: s.lastRepair.Add(delay)}
	}
	s.repairs++
	s.lastRepair = now
	driftRepairs.Inc()
	return nil
}

// states holds the state of every work.
type states struct {
	mu    sync.Mutex
	works map[string]*workState
}

func (s *states) get(name string) *workState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.works == nil {
		s.works = map[string]*workState{}
	}
	if s.works[name] == nil {
		s.works[name] = &workState{items: map[objectID]*itemState{}}
	}
	return s.works[name]
}

func (s *states) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.works, name)
}

// newer returns the newer of a version from an informer and one that a write
// returned.
func newer[T interface {
	comparable
	metav1.Object
}](cached, written T) T {
	var none T
	if written == none {
		return cached
	}
	if cached == none || cached.GetUID() != written.GetUID() {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), cached.GetResourceVersion()); err == nil && order > 0 {
		return written
	}
	return cached
}
