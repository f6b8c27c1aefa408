package manifestwork

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// recordChoice records the user who chose the executor of a new ManifestWork. A ManifestWork that
// never had an executor has no record.
func recordChoice(ctx context.Context, w *work.ManifestWork) {
	if w.Spec.Executor == nil {
		return
	}
	by, at := chooser(ctx), metav1.Now().Rfc3339Copy()
	w.Status.ExecutorChoice = &workv1.ExecutorChoice{ChosenBy: by, ChosenAt: at, SpecChangedBy: by, SpecChangedAt: at}
}

// updateChoice records the user who changed the spec of a ManifestWork, and the user who
// changed its executor. If there is no record yet, the user who changes the spec also chooses
// the executor.
func updateChoice(ctx context.Context, w, old *work.ManifestWork) {
	if equality.Semantic.DeepEqual(w.Spec, old.Spec) {
		return
	}
	before := old.Status.ExecutorChoice
	if w.Spec.Executor == nil && old.Spec.Executor == nil && before == nil {
		return
	}
	if before == nil || !equality.Semantic.DeepEqual(w.Spec.Executor, old.Spec.Executor) {
		before = &workv1.ExecutorChoice{ChosenBy: chooser(ctx), ChosenAt: metav1.Now().Rfc3339Copy()}
	}
	choice := before.DeepCopy()
	choice.SpecChangedBy, choice.SpecChangedAt = chooser(ctx), metav1.Now().Rfc3339Copy()
	w.Status.ExecutorChoice = choice
}

func chooser(ctx context.Context) workv1.ExecutorChooser {
	caller, known := request.UserFrom(ctx)
	if !known {
		return workv1.ExecutorChooser{} // the guard refuses a request without a user
	}
	return workv1.ExecutorChooser{Username: caller.GetName(), UID: caller.GetUID()}
}
