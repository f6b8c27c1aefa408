package work

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// supersededGrace is the time that a pending request may take after the ManifestWork is deleted.
const supersededGrace = 5 * time.Second

// errSuperseded ends a pass over a ManifestWork that is deleted during the pass.
var errSuperseded = errors.New("the ManifestWork was deleted")

// workState is what the agent knows of one ManifestWork between passes. It saves requests. After a
// restart, it is rebuilt. Only passes over the ManifestWork use it, except for the fields that the mu of
// states guards.
type workState struct {
	// uid and classified are the UID and the generation to which tenant, permission and slow belong; see
	// states.class. permission is true if the ManifestWork delivers a ClusterPermission. slow is true if a
	// pass failed or took more than one slice. interrupt ends the pass that applies the ManifestWork; see
	// states.interruptible. mu guards them.
	uid              types.UID
	classified       int64
	tenant           string
	permission, slow bool
	interrupt        func()

	// hub and record are written versions that the informers may not contain yet.
	hub    *workv1.ManifestWork
	record *workv1.AppliedManifestWork
	// items are the states of the objects that were applied under the AppliedManifestWork with the
	// UID owner.
	owner types.UID
	items map[decide.ObjectID]*itemState
	// notBefore is the time at which the failed manifests are retried.
	notBefore time.Time
	// waits are the objects that failed manifests wait for, with the versions at that time. A
	// change of one ends the wait for notBefore.
	waits map[objectRef]version
	// generation is the generation to which notBefore and refused belong.
	generation int64
	// admitted is the last permission to act. It is empty if the ManifestWork names no executor or is
	// removed. refused is the time since which there is no permission, or zero.
	admitted admission
	refused  time.Time
	// seen is true if the hub has had the ManifestWork since the session began. compared is true after the
	// first pass over all manifests, and retained are the objects that had none then.
	seen, compared bool
	retained       sets.Set[decide.ObjectID]
	// confirmed is true if an administrator has confirmed that the objects of a ManifestWork that a
	// restored hub does not know are removed.
	confirmed bool
	// executor is the executor of the last pass. It is empty if the ManifestWork names no executor.
	executor types.NamespacedName
	// unsettled is the time of the last write whose result is uncertain. The managed cluster may
	// complete such a write later.
	unsettled time.Time
	// round is the number of passes; a pass in several slices counts once. cut is true if the last
	// slice left objects to the next slice.
	round int
	cut   bool
	// joined is the number of passes over joinedGeneration that have joined the trace of a request.
	joined           int
	joinedGeneration int64
}

// admission is the permission of a ManifestWork to act.
type admission struct {
	// client acts as the executor. It is nil if the permissions are unknown.
	client     dynamic.Interface
	generation int64
	executor   types.NamespacedName
	// targets is the number of objects whose permissions were checked. It grows when another kind is
	// served.
	targets int
	// until is the time at which the permissions are checked again even if nothing is written.
	until time.Time
}

// itemState is what the agent knows of one manifest between passes.
type itemState struct {
	apply.State
	// hash is the hash of the item to which the other fields belong.
	hash string
	// seen is the version of the object to which result belongs. If unseen is true, the object must be
	// read again.
	seen   version
	unseen bool
	// result is the result of the last attempt.
	result status.Result
	// note names the ignored fields that the manifest does not contain, or is nil until an object is observed. The manifest
	// does not change, so its expressions are not evaluated for each change of the object.
	note *string
	// round is the round in which the object was last tried.
	round int
}

// see records the live object to which the result belongs, or nil if it is not known.
func (s *itemState) see(live *unstructured.Unstructured) {
	s.seen, s.unseen = version{}, false
	if live != nil {
		s.seen = versionOf(live)
	}
}

// unbound reports whether the object is a binding that was not applied because of its role.
func (s *itemState) unbound() bool {
	return decide.GuardReason(s.result.Err) == workv1.ReasonAppliedManifestRoleNotApplied
}

type states struct {
	mu    sync.Mutex
	works map[cache.ObjectName]*workState
}

// get returns the state of an object, which it creates if necessary.
func (s *states) get(key cache.ObjectName) *workState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(key)
}

func (s *states) getLocked(key cache.ObjectName) *workState {
	if s.works == nil {
		s.works = map[cache.ObjectName]*workState{}
	}
	if s.works[key] == nil {
		s.works[key] = &workState{items: map[decide.ObjectID]*itemState{}}
	}
	return s.works[key]
}

func (s *states) drop(key cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.works, key)
}

// interruptible returns the context of a pass that applies a ManifestWork. When the ManifestWork is
// deleted, interrupted returns true, and after supersededGrace the context ends.
func (s *states) interruptible(ctx context.Context, st *workState) (_ context.Context, interrupted func() bool, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var deleted atomic.Bool
	s.mu.Lock()
	defer s.mu.Unlock()
	st.interrupt = func() {
		deleted.Store(true)
		time.AfterFunc(supersededGrace, func() { cancel(errSuperseded) })
	}
	return ctx, deleted.Load, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.interrupt = nil
		cancel(nil)
	}
}

// observe ends the pass that applies a ManifestWork if that is deleted.
func (s *states) observe(obj any, deleted bool) {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok || !deleted && work.DeletionTimestamp == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.works[cache.MetaObjectToName(work)]; st != nil && st.interrupt != nil {
		st.interrupt()
		st.interrupt = nil
	}
}

// newer returns the newer version of an object from an informer and an object that a write
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
