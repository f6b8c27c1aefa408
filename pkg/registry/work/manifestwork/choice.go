package manifestwork

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

// chosen stamps a new work with who has chosen its executor. A work that never had an
// executor has no stamp.
func chosen(ctx context.Context, w *work.ManifestWork) {
	if w.Spec.Executor == nil {
		return
	}
	by, at := chooser(ctx), metav1.Now().Rfc3339Copy()
	w.Status.ExecutorChoice = &work.ExecutorChoice{ChosenBy: by, ChosenAt: at, SpecChangedBy: by, SpecChangedAt: at}
}

// changed brings the stamp of a work up to date whose spec was written. Who changes
// the spec of a work that is older than such stamps chooses its executor thereby.
func changed(ctx context.Context, w, old *work.ManifestWork) {
	if equality.Semantic.DeepEqual(w.Spec, old.Spec) {
		return
	}
	before := old.Status.ExecutorChoice
	if w.Spec.Executor == nil && old.Spec.Executor == nil && before == nil {
		return
	}
	if before == nil || !equality.Semantic.DeepEqual(w.Spec.Executor, old.Spec.Executor) {
		before = &work.ExecutorChoice{ChosenBy: chooser(ctx), ChosenAt: metav1.Now().Rfc3339Copy()}
	}
	choice := before.DeepCopy()
	choice.SpecChangedBy, choice.SpecChangedAt = chooser(ctx), metav1.Now().Rfc3339Copy()
	w.Status.ExecutorChoice = choice
}

func chooser(ctx context.Context) work.ExecutorChooser {
	caller, known := request.UserFrom(ctx)
	if !known {
		return work.ExecutorChooser{} // the guard refuses the write
	}
	return work.ExecutorChooser{Username: caller.GetName(), UID: caller.GetUID()}
}
