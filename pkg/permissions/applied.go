package permissions

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Reported reports whether the agent has reported on the current generation of a ManifestWork.
func Reported(work *workv1.ManifestWork) bool {
	if work == nil {
		return false
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return applied != nil && (applied.ObservedGeneration == 0 || applied.ObservedGeneration >= work.Generation)
}

// IsApplied reports whether the agent has applied the current generation of a ManifestWork.
func IsApplied(work *workv1.ManifestWork) bool {
	return Reported(work) && work.DeletionTimestamp == nil && (meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) || everythingWritten(work))
}

// everythingWritten reports whether a ManifestWork contains read-only roles, which validate: true
// requests, and all other objects are applied. Other conditions report whether the roles exist.
func everythingWritten(work *workv1.ManifestWork) bool {
	hasReadOnly := false
	for _, d := range Objects(work) {
		if d.ReadOnly {
			hasReadOnly = true
		} else if !meta.IsStatusConditionTrue(d.Conditions, workv1.WorkApplied) {
			return false
		}
	}
	return hasReadOnly
}

// Object is an object of a ManifestWork with the conditions that the agent reports.
type Object struct {
	render.ObjectKey
	Conditions []metav1.Condition
	ReadOnly   bool
}

// Objects returns the objects of a ManifestWork in order.
func Objects(work *workv1.ManifestWork) []Object {
	conditions := map[render.ObjectKey][]metav1.Condition{}
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		m := manifest.ResourceMeta
		conditions[render.ObjectKey{Kind: m.Kind, Namespace: m.Namespace, Name: m.Name}] = manifest.Conditions
	}
	var out []Object
	for _, manifest := range work.Spec.Workload.Manifests {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(manifest.Raw, &object); err != nil {
			continue
		}
		o := Object{ObjectKey: render.ObjectKey{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name}}
		o.Conditions = conditions[o.ObjectKey]
		o.ReadOnly = slices.ContainsFunc(work.Spec.ManifestConfigs, func(config workv1.ManifestConfigOption) bool {
			id := config.ResourceIdentifier
			return config.UpdateStrategy != nil && config.UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly &&
				id.Name == o.Name && ptr.Deref(id.Namespace, "") == o.Namespace && id.Resource == strings.ToLower(o.Kind)+"s"
		})
		out = append(out, o)
	}
	return out
}
