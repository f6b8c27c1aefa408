package permissions

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// requests are the spans of requests that store ClusterPermissions, by UID. The Controller receives a stored
// ClusterPermission while its request still runs, and may write the ManifestWork first. The write then belongs to
// the trace of the request.
type requests struct {
	mu    sync.Mutex
	spans map[types.UID]trace.Span
}

func endRender(span trace.Span, result *render.Result, errs field.ErrorList, err error) {
	reason := tracing.Reason(err)
	if len(errs) > 0 {
		reason = string(metav1.StatusReasonInvalid)
	} else if result != nil && result.Work != nil {
		span.SetAttributes(attribute.Int("manifestwork.manifests", len(result.Work.Spec.Workload.Manifests)))
	}
	tracing.End(span, reason)
}

func attributes(permission *rbacv1alpha1.ClusterPermission) []attribute.KeyValue {
	return []attribute.KeyValue{
		tracing.Text("clusterpermission.namespace", permission.Namespace), tracing.Text("clusterpermission.name", permission.Name),
	}
}

// add adds the span of a request until its context ends. It does nothing if the span is not recorded.
func (r *requests) add(ctx context.Context, uid types.UID) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() || uid == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spans == nil {
		r.spans = map[types.UID]trace.Span{}
	}
	r.spans[uid] = span
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.spans[uid] == span {
			delete(r.spans, uid)
		}
	})
}

// join returns a context with the span of the request that stores a ClusterPermission, if there is one and the
// context has no span of its own.
func (r *requests) join(ctx context.Context, uid types.UID) context.Context {
	if trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if span := r.spans[uid]; span != nil {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}
