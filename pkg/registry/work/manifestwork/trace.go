package manifestwork

import (
	"context"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// check checks the executor of a ManifestWork, and former executors, in a span.
func check(ctx context.Context, executors Executors, w *work.ManifestWork, former ...*workv1.ManifestWorkExecutor) error {
	ctx, span := tracing.Start(ctx, "Check executor", tracing.Text("manifestwork.namespace", w.Namespace), tracing.Text("manifestwork.name", w.Name))
	err := executors.Check(ctx, w.Namespace, w.Name, w.Spec.Executor, former...)
	tracing.End(span, tracing.Reason(err))
	return err
}
