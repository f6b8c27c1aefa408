package work

import (
	"cmp"
	"encoding/json"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
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

// class returns the scheduling class of an object of the loop. work is nil if the hub does not have it. A
// ManifestWork is classified once for each generation, because that reads its manifests.
func (s *states) class(key cache.ObjectName, work *workv1.ManifestWork) fair.Class {
	if key.Namespace == "" {
		return fair.Class{Priority: true, Tenant: tenantFormer}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.getLocked(key)
	if work == nil {
		return fair.Class{Priority: true, Tenant: cmp.Or(st.tenant, tenantGone)}
	}
	if st.uid != work.UID || st.classified != work.Generation {
		st.uid, st.classified, st.slow = work.UID, work.Generation, false
		st.tenant, st.permission = tenantOf(work), decide.Delivers(work) && deliverable(work)
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	switch {
	case work.DeletionTimestamp != nil || !st.permission || st.slow:
		return fair.Class{Priority: work.DeletionTimestamp != nil, Tenant: st.tenant}
	case applied != nil && applied.ObservedGeneration == work.Generation:
		return fair.Class{Priority: true, Tenant: tenantPermission}
	}
	return fair.Class{Priority: true, Tenant: tenantNewPermission}
}

// passed records the result of a pass. If a pass over the ManifestWork of a ClusterPermission fails
// or takes long, the ManifestWork leaves the priority lane until its spec changes. Otherwise, users
// with permission to write ManifestWorks could occupy the lane, because they can mark any
// ManifestWork as such.
func (s *states) passed(key cache.ObjectName, result outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st := s.works[key]; {
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
	first := metadataOf(work.Spec.Workload.Manifests[0])
	if first.Kind == "Namespace" {
		return "namespace/" + first.Name
	}
	return "namespace/" + first.Namespace
}

// deliverable reports whether the ManifestWork of a ClusterPermission can have this content. The
// annotation is no proof, because authors of ManifestWorks can set it.
func deliverable(work *workv1.ManifestWork) bool {
	_, named := ExecutorOf(work)
	return !named && !slices.ContainsFunc(work.Spec.Workload.Manifests, func(manifest workv1.Manifest) bool {
		return metadataOf(manifest).GroupVersionKind().Group != rbacv1.GroupName
	})
}

// metadataOf returns the kind and the name of a manifest, as far as the manifest is valid.
func metadataOf(manifest workv1.Manifest) *metav1.PartialObjectMetadata {
	partial := &metav1.PartialObjectMetadata{}
	_ = json.Unmarshal(manifest.Raw, partial)
	return partial
}
