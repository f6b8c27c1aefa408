// Package manifestwork serves ManifestWorks.
package manifestwork

import (
	"context"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// Executors checks whether callers may use executors.
type Executors interface {
	// Check returns an error if the caller may not write the spec of a ManifestWork. executor is the
	// executor of the spec, which is nil if it has none. former are executors that the write replaces.
	Check(ctx context.Context, namespace, name string, executor *workv1.ManifestWorkExecutor, former ...*workv1.ManifestWorkExecutor) error
	// CheckOwners returns an error if the caller may not add owner references to a ManifestWork.
	CheckOwners(ctx context.Context, namespace, name string) error
}

// Options configure ManifestWorks.
type Options struct {
	// LimitBytes limits the total size of the manifests of one ManifestWork.
	LimitBytes int64
	// Executors checks every write of a spec.
	Executors Executors
}

// Definition returns the row of ManifestWorks.
func Definition(o Options) definition.Resource {
	return definition.Resource{
		Name: "manifestworks", Singular: "manifestwork", Kind: "ManifestWork",
		ShortNames: []string{"mw"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{workv1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*work.ManifestWork]{
			ServerStatus: "executorChoice",
			// The caller of an import vouches for the executor.
			PrepareForImport: recordChoice,
			PrepareForCreate: func(ctx context.Context, w *work.ManifestWork) {
				recordChoice(ctx, w)
				tracing.Annotate(ctx, &w.ObjectMeta, workv1.TraceparentAnnotation)
			},
			PrepareForUpdate: func(ctx context.Context, w, old *work.ManifestWork) {
				keepStoredJSON(w, old)
				updateChoice(ctx, w, old)
				// Other writes keep the annotation, so that the same spec under another trace is no change.
				if !equality.Semantic.DeepEqual(w.Spec, old.Spec) {
					tracing.Annotate(ctx, &w.ObjectMeta, workv1.TraceparentAnnotation)
				}
			},
			Rules: validation.ManifestWork(o.LimitBytes),
			SelectableFields: map[string]func(*work.ManifestWork) string{
				"spec.executor.subject.serviceAccount.namespace": func(w *work.ManifestWork) string { return executor(w).Namespace },
				"spec.executor.subject.serviceAccount.name":      func(w *work.ManifestWork) string { return executor(w).Name },
			},
		},
		Quota: quota.Limits{Objects: 10_000, Bytes: 64 << 20},
		// LimitBytes limits the manifests. A status has up to a kilobyte for each manifest.
		Limits: quota.ObjectLimits{SpecBytes: max(o.LimitBytes, 0) + 512<<10, StatusBytes: 1 << 20, StatusItems: 20_000},
		Wrap:   executorGuard(o.Executors).Wrap,
		Columns: definition.Columns[*work.ManifestWork]{
			{Name: "Applied", Description: "Whether every manifest is applied on the managed cluster.", Condition: workv1.WorkApplied},
			{Name: "Available", Description: "Whether every applied object exists on the managed cluster.", Condition: workv1.WorkAvailable},
			{Name: "Manifests", Description: "Number of manifests.", Value: func(w *work.ManifestWork) any {
				return strconv.Itoa(len(w.Spec.Workload.Manifests))
			}},
			{Name: "Executor", Description: "ServiceAccount as which the ManifestWork is applied.", Wide: true, Value: func(w *work.ManifestWork) any {
				if w.Spec.Executor == nil {
					return "<none>"
				}
				return executor(w).Namespace + "/" + executor(w).Name
			}},
		},
	}
}

// executorGuard checks every write of a spec, even if the executor stays the same: the agent applies
// the whole spec as its executor.
func executorGuard(executors Executors) definition.Guard[*work.ManifestWork] {
	return func(ctx context.Context, w, old *work.ManifestWork) error {
		if old == nil {
			return check(ctx, executors, w)
		}
		if addsOwner(w, old) {
			if err := executors.CheckOwners(ctx, w.Namespace, w.Name); err != nil {
				return err
			}
		}
		switch {
		case equality.Semantic.DeepEqual(w.Spec, old.Spec):
			return nil
		case equality.Semantic.DeepEqual(w.Spec.Executor, old.Spec.Executor):
			return check(ctx, executors, w)
		}
		// The agent removes the objects of the former executor as itself, or applies them as the new one.
		return check(ctx, executors, w, old.Spec.Executor)
	}
}

// check checks the executor of a ManifestWork, and former executors, in a span.
func check(ctx context.Context, executors Executors, w *work.ManifestWork, former ...*workv1.ManifestWorkExecutor) error {
	ctx, span := tracing.Start(ctx, "Check executor", tracing.Text("manifestwork.namespace", w.Namespace), tracing.Text("manifestwork.name", w.Name))
	err := executors.Check(ctx, w.Namespace, w.Name, w.Spec.Executor, former...)
	tracing.End(span, tracing.Reason(err))
	return err
}

// addsOwner reports whether an update adds an owner reference, or makes one refer to another object.
func addsOwner(w, old *work.ManifestWork) bool {
	return slices.ContainsFunc(w.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(old.OwnerReferences, func(before metav1.OwnerReference) bool {
			before.Controller, before.BlockOwnerDeletion = owner.Controller, owner.BlockOwnerDeletion
			return before == owner
		})
	})
}

func executor(w *work.ManifestWork) workv1.ManifestWorkSubjectServiceAccount {
	if w.Spec.Executor == nil || w.Spec.Executor.Subject.ServiceAccount == nil {
		return workv1.ManifestWorkSubjectServiceAccount{}
	}
	return *w.Spec.Executor.Subject.ServiceAccount
}
