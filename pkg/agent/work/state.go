package work

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// workState is what the agent knows of one ManifestWork between passes. It saves requests. After a
// restart, it is rebuilt. Only passes over the ManifestWork use it, except for the fields that the mu of
// states guards.
type workState struct {
	// uid and classified are the UID and the generation to which tenant, permission and slow belong; see
	// states.class. permission is true if the ManifestWork delivers a ClusterPermission. slow is true if a
	// pass failed or took more than one slice. mu guards them.
	uid              types.UID
	classified       int64
	tenant           string
	permission, slow bool

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

func (s *states) forget(key cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.works, key)
}
