package work

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// supersededGrace is the time that a pending request may take after the ManifestWork is
	// deleted.
	supersededGrace = 5 * time.Second
)

// Tenants that do not depend on the content of a ManifestWork.
const (
	tenantGone       = "gone"
	tenantFormer     = "formerhub"
	tenantPermission = "clusterpermissions"
	// tenantNewPermission is the tenant of ManifestWorks of ClusterPermissions whose generation was
	// not reported yet, so that they do not wait while all others are repaired.
	tenantNewPermission = "clusterpermissions/new"
)

// errSuperseded ends a pass over a ManifestWork that is deleted during the pass.
var errSuperseded = errors.New("the ManifestWork was deleted")

// scheduling is the part of the state that decides the order of passes. Informers and passes update it
// while they hold the mu of states.
type scheduling struct {
	uid    types.UID
	tenant string
	// observed is the observed generation.
	observed int64
	// removed is true if the ManifestWork is being deleted or does not exist on the hub. gone is
	// true if it does not exist on the hub.
	removed, gone bool
	// permission is true if the ManifestWork delivers a ClusterPermission. reported is true if the
	// status was written for the current generation. slow is true if a pass over this generation
	// failed or took more than one slice.
	permission, reported, slow bool
	// superseded ends the current pass. ending is true after it was called.
	superseded func()
	ending     bool
}

// observe records a version of a ManifestWork, or its deletion from the hub.
func (s *states) observe(obj any, deleted bool) {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok {
		return
	}
	key := cache.MetaObjectToName(work)
	s.mu.Lock()
	defer s.mu.Unlock()
	if deleted {
		if st := s.works[key]; st != nil {
			st.gone = true
			st.remove(true)
		}
		return
	}
	st := s.getLocked(key)
	if st.uid != work.UID || st.observed != work.Generation {
		st.uid, st.observed, st.slow = work.UID, work.Generation, false
		st.tenant, st.permission = tenantOf(work), decide.Delivers(work) && deliverable(work)
	}
	st.gone = false
	st.remove(work.DeletionTimestamp != nil)
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	st.reported = applied != nil && applied.ObservedGeneration == work.Generation
}

// remove records whether the ManifestWork is removed. A removal ends a pass that applies the
// ManifestWork.
func (st *scheduling) remove(removed bool) {
	if removed && !st.removed && st.superseded != nil {
		st.superseded()
	}
	st.removed = removed
}

// class returns the scheduling class of an object of the loop.
func (s *states) class(key cache.ObjectName) fair.Class {
	if key.Namespace == "" {
		return fair.Class{Priority: true, Tenant: tenantFormer}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[key]
	switch {
	case st == nil || st.uid == "":
		return fair.Class{Priority: true, Tenant: tenantGone}
	case st.removed:
		return fair.Class{Priority: true, Tenant: st.tenant}
	case st.permission && !st.slow && st.reported:
		return fair.Class{Priority: true, Tenant: tenantPermission}
	case st.permission && !st.slow:
		return fair.Class{Priority: true, Tenant: tenantNewPermission}
	}
	return fair.Class{Tenant: st.tenant}
}

// begin returns the context of a pass over a ManifestWork. The context ends early if the
// ManifestWork is deleted. The returned function ends the pass.
func (s *states) begin(ctx context.Context, key cache.ObjectName) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[key]
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

// ending reports whether the pass over a ManifestWork should end.
func (s *states) ending(key cache.ObjectName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[key]
	return st != nil && st.ending
}

// passed records the result of a pass. If a pass over the ManifestWork of a ClusterPermission fails
// or takes long, the ManifestWork leaves the priority lane until its spec changes. Otherwise, users
// with permission to write ManifestWorks could occupy the lane, because they can mark any
// ManifestWork as such.
func (s *states) passed(key cache.ObjectName, result outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.works[key]
	switch {
	case st == nil:
	case err != nil:
		st.slow = st.slow || !apierrors.IsConflict(err)
	case result.partial:
		st.slow = true
	case !result.waiting:
		st.slow = false
	}
}

// tenantOf returns the tenant of a ManifestWork: its executor; otherwise, if the hub has recorded
// it, the user who last wrote the spec; otherwise the namespace of the first object.
func tenantOf(work *workv1.ManifestWork) string {
	if executor, named := ExecutorOf(work); named {
		return "executor/" + executor.String()
	}
	if decide.Delivers(work) {
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

// deliverable reports whether the ManifestWork of a ClusterPermission can have this content. The
// annotation is no proof, because authors of ManifestWorks can set it.
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

// partialOf returns the kind and the name of a manifest. They are empty if the manifest is
// malformed.
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
