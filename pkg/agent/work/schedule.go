package work

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// defaultSlice keeps passes short, so that tenants take turns: a pass begins no
	// object after that time, and goes on with the rest in its next turn.
	defaultSlice = 10 * time.Second
	// supersededGrace is how long the request under way may take when the work of a
	// pass is deleted.
	supersededGrace = time.Second
	// stuckTime is how long a worker may neither return nor make a request.
	stuckTime = 30 * time.Second
)

// Tenants that are not derived from a ManifestWork.
const (
	tenantGone       = "gone"
	tenantFormer     = "formerhub"
	tenantPermission = "clusterpermissions"
	// tenantNewPermission has the ManifestWorks of ClusterPermissions whose present
	// spec was not reported yet, so that they do not wait for a repair of all others.
	tenantNewPermission = "clusterpermissions/new"
)

// errSuperseded ends a pass over a work that was deleted meanwhile.
var errSuperseded = errors.New("the ManifestWork was deleted")

// schedule is what the order of passes depends on. Informers and passes keep it.
type schedule struct {
	mu    sync.Mutex
	works map[string]*standing
}

// standing is what the schedule knows of one work.
type standing struct {
	uid        types.UID
	generation int64
	tenant     string
	// removed is whether the work is being deleted, or is gone from the hub.
	removed, gone bool
	// permission is whether the work delivers a ClusterPermission, and reported whether
	// the status is about the present generation.
	permission, reported bool
	// failed and long are whether a pass over this generation failed, or took more
	// than one slice.
	failed, long bool
	// superseded ends the pass that is under way.
	superseded func()
	ending     bool
}

// observe takes note of a version of a work.
func (s *schedule) observe(work *workv1.ManifestWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[work.Name]
	if st == nil {
		st = &standing{}
		s.works[work.Name] = st
	}
	if st.uid != work.UID || st.generation != work.Generation {
		st.uid, st.generation, st.failed, st.long = work.UID, work.Generation, false, false
		st.tenant, st.permission = tenantOf(work), delivers(work) && deliverable(work)
	}
	st.gone = false
	st.remove(work.DeletionTimestamp != nil)
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	st.reported = applied != nil && applied.ObservedGeneration == work.Generation
}

// lost takes note that the hub does not have a work any more.
func (s *schedule) lost(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.works[name]; st != nil {
		st.gone = true
		st.remove(true)
	}
}

// remove notes whether the work is removed, for which no pass goes on that applies it.
func (st *standing) remove(removed bool) {
	if removed && !st.removed && st.superseded != nil {
		st.superseded()
	}
	st.removed = removed
}

// forget drops a work that is gone.
func (s *schedule) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.works[name]; st != nil && st.gone {
		delete(s.works, name)
	}
}

// class returns how a work is scheduled. retried is whether it waits for another try,
// woken whether permissions of its executor may have changed.
func (s *schedule) class(name string, retried, woken bool) fair.Class {
	if strings.HasPrefix(name, formerKey) {
		return fair.Class{Priority: true, Tenant: tenantFormer, Failed: retried}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[name]
	switch {
	case st == nil:
		return fair.Class{Priority: true, Tenant: tenantGone, Failed: retried}
	case st.removed:
		return fair.Class{Priority: true, Tenant: st.tenant, Failed: retried}
	case st.permission && !st.failed && !st.long && st.reported:
		return fair.Class{Priority: true, Tenant: tenantPermission}
	case st.permission && !st.failed && !st.long:
		return fair.Class{Priority: true, Tenant: tenantNewPermission}
	case woken:
		return fair.Class{Priority: true, Tenant: st.tenant}
	}
	return fair.Class{Tenant: st.tenant, Failed: retried && st.failed}
}

// begin returns a context for a pass over a work, which ends early when the work is
// removed, and what ends it.
func (s *schedule) begin(ctx context.Context, name string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[name]
	if st == nil || st.removed {
		return ctx, func() { cancel(nil) }
	}
	var timer *time.Timer
	st.ending = false
	st.superseded = func() {
		st.ending = true
		timer = time.AfterFunc(supersededGrace, func() { cancel(errSuperseded) })
	}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.superseded = nil
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}

// ending reports whether a pass over a work should end.
func (s *schedule) ending(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[name]
	return st != nil && st.ending
}

// passed takes note of what a pass over a work came to. The ManifestWork of a
// ClusterPermission whose pass failed or was long leaves the priority lane until its
// spec changes: users with permission to write ManifestWorks can mark any as such.
func (s *schedule) passed(name string, came outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[name]
	switch {
	case st == nil:
	case err != nil:
		st.failed = st.failed || !isConflict(err)
	case came.partial:
		st.long = true
	case !came.waiting:
		st.failed, st.long = false, false
	}
}

// tenantOf returns whose work it is: the executor's, or else the user's who last wrote
// the spec if the hub has stamped that, or else the namespace's on the managed cluster
// that has the first object.
func tenantOf(work *workv1.ManifestWork) string {
	if executor, named := ExecutorOf(work); named {
		return "executor/" + executor.String()
	}
	if delivers(work) {
		return tenantPermission
	}
	if choice := work.Status.ExecutorChoice; choice != nil && choice.SpecChangedBy.Username != "" {
		return "user/" + choice.SpecChangedBy.Username
	}
	if len(work.Spec.Workload.Manifests) == 0 {
		return "namespace/"
	}
	first := partialOf(work.Spec.Workload.Manifests[0])
	if first.Kind == "Namespace" {
		return "namespace/" + first.Name
	}
	return "namespace/" + first.Namespace
}

// deliverable reports whether a ClusterPermission can have such a work. The mark of
// these works is no proof, since authors of ManifestWorks can set it.
func deliverable(work *workv1.ManifestWork) bool {
	if _, named := ExecutorOf(work); named {
		return false
	}
	for _, manifest := range work.Spec.Workload.Manifests {
		group, err := schema.ParseGroupVersion(partialOf(manifest).APIVersion)
		if err != nil || group.Group != rbacv1.GroupName {
			return false
		}
	}
	return true
}

// partialOf returns what a manifest says about its kind and name. One that cannot be
// read has neither.
func partialOf(manifest workv1.Manifest) metav1.PartialObjectMetadata {
	var partial struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(manifest.Raw, &partial); err != nil {
		return metav1.PartialObjectMetadata{}
	}
	return metav1.PartialObjectMetadata{TypeMeta: partial.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: partial.Metadata.Name, Namespace: partial.Metadata.Namespace}}
}
