// Package manifestwork defines how ManifestWorks are served.
package manifestwork

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition is the row of ManifestWorks. The manifests of a work may have
// limitBytes bytes in all.
func Definition(limitBytes int64) definition.Resource {
	return definition.Resource{
		Name: "manifestworks", Singular: "manifestwork", Kind: "ManifestWork",
		ShortNames: []string{"mw"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{workv1.SchemeGroupVersion},
		New:      func() runtime.Object { return &work.ManifestWork{} },
		NewList:  func() runtime.Object { return &work.ManifestWorkList{} },
		Strategy: &definition.Strategy[*work.ManifestWork]{
			Spec:   func(w *work.ManifestWork) any { return &w.Spec },
			Status: func(w *work.ManifestWork) any { return &w.Status },
			Validate: func(w *work.ManifestWork) field.ErrorList {
				return validation.ValidateManifestWork(w, limitBytes)
			},
			ValidateUpdate: func(w, old *work.ManifestWork) field.ErrorList {
				return validation.ValidateManifestWorkUpdate(w, old, limitBytes)
			},
			ValidateStatusUpdate: validation.ValidateManifestWorkStatusUpdate,
			SelectableFields: map[string]func(*work.ManifestWork) string{
				"spec.executor.subject.serviceAccount.namespace": func(w *work.ManifestWork) string { return executor(w).Namespace },
				"spec.executor.subject.serviceAccount.name":      func(w *work.ManifestWork) string { return executor(w).Name },
			},
		},
		Columns: definition.Columns[*work.ManifestWork]{
			definition.ConditionColumn("Applied", "Whether every manifest is applied on the managed cluster.", workv1.WorkApplied, conditions),
			definition.ConditionColumn("Available", "Whether every applied object exists on the managed cluster.", workv1.WorkAvailable, conditions),
			{Name: "Manifests", Description: "Number of manifests.", Value: func(w *work.ManifestWork) any {
				return strconv.Itoa(len(w.Spec.Workload.Manifests))
			}},
			{Name: "Executor", Description: "The ServiceAccount that the work acts as.", Wide: true, Value: func(w *work.ManifestWork) any {
				if w.Spec.Executor == nil {
					return "<none>"
				}
				return executor(w).Namespace + "/" + executor(w).Name
			}},
		},
	}
}

func executor(w *work.ManifestWork) work.ManifestWorkSubjectServiceAccount {
	if w.Spec.Executor == nil || w.Spec.Executor.Subject.ServiceAccount == nil {
		return work.ManifestWorkSubjectServiceAccount{}
	}
	return *w.Spec.Executor.Subject.ServiceAccount
}

func conditions(w *work.ManifestWork) []metav1.Condition { return w.Status.Conditions }
