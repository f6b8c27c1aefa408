package work

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

const (
	// maxPassSpans and maxAccessSpans limit the spans of one pass: a ManifestWork can have hundreds of manifests.
	// The spans of access checks have a limit of their own, so that spans of writes remain.
	maxPassSpans   = 256
	maxAccessSpans = 64
	// reportSpans are the spans of a status report and of its request.
	reportSpans = 2
	// maxJoined limits the passes over one generation that join its trace. Passes that do not reach the status
	// report repeat.
	maxJoined = 5
	// joinedPerSecond and joinedBurst limit the passes that join traces. On a hub that stores ManifestWorks in a
	// CustomResourceDefinition, tenants can write the annotation.
	joinedPerSecond = 10
	joinedBurst     = 200
)

// tracer starts the spans of passes. A nil tracer starts none.
type tracer struct {
	tracer trace.Tracer
	joined *rate.Limiter
	now    func() time.Time
}

func newTracer(provider trace.TracerProvider, now func() time.Time) *tracer {
	if provider == nil {
		return nil
	}
	return &tracer{tracer: provider.Tracer(tracing.Scope), joined: rate.NewLimiter(joinedPerSecond, joinedBurst), now: now}
}

// pass makes a pass over a ManifestWork in a span.
func (t *tracer) pass(ctx context.Context, work *workv1.ManifestWork, st *workState, run func(context.Context) (outcome, error)) (outcome, error) {
	if t == nil {
		return run(ctx)
	}
	ctx, span := t.start(ctx, work, st)
	ctx, budget := tracing.WithBudget(ctx, maxPassSpans)
	result, err := run(ctx)
	state := result.state
	if err != nil {
		state = cmp.Or(state, stateFailed)
	}
	span.SetAttributes(attribute.String("pass.state", state), attribute.Bool("pass.partial", result.partial))
	if omitted := budget.Omitted(); omitted > 0 {
		span.SetAttributes(attribute.Int("pass.omitted_spans", omitted))
	}
	tracing.End(span, tracing.Reason(err))
	return result, err
}

// start starts the span of a pass over a ManifestWork. If the status does not contain the generation of the
// ManifestWork yet, the pass is caused by the request in the annotation, and the span belongs to its trace.
// Otherwise it starts a trace, which the provider samples, with a link to the request.
func (t *tracer) start(ctx context.Context, work *workv1.ManifestWork, st *workState) (context.Context, trace.Span) {
	name := "Apply ManifestWork"
	if work.DeletionTimestamp != nil {
		name = "Remove ManifestWork"
	}
	options := []trace.SpanStartOption{trace.WithAttributes(
		tracing.Text("manifestwork.namespace", work.Namespace), tracing.Text("manifestwork.name", work.Name),
		attribute.Int64("manifestwork.generation", work.Generation),
		attribute.Int("manifestwork.manifests", len(work.Spec.Workload.Manifests)),
	)}
	if parent, valid := tracing.ParseParent(work.Annotations[workv1.TraceparentAnnotation]); valid {
		if t.joins(work, st) {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		} else {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
		}
	}
	return t.tracer.Start(ctx, name, options...)
}

// joins reports whether a pass joins the trace of the request that wrote the spec.
func (t *tracer) joins(work *workv1.ManifestWork, st *workState) bool {
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if work.DeletionTimestamp != nil || applied != nil && applied.ObservedGeneration == work.Generation {
		return false
	}
	if st.joinedGeneration != work.Generation {
		st.joinedGeneration, st.joined = work.Generation, 0
	}
	if st.joined >= maxJoined || !t.joined.AllowN(t.now(), 1) {
		return false
	}
	st.joined++
	return true
}

type tracedExecutors struct{ Executors }

// Admit implements Executors.
func (t tracedExecutors) Admit(ctx context.Context, request AdmitRequest) (dynamic.Interface, error) {
	executor, named := ExecutorOf(request.Work)
	if !named {
		return t.Executors.Admit(ctx, request)
	}
	ctx, span := tracing.Start(ctx, "Check access of executor", tracing.Text("executor", executor.String()))
	ctx, _ = tracing.WithBudget(ctx, maxAccessSpans)
	client, err := t.Executors.Admit(ctx, request)
	reason := tracing.Reason(err)
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		span.SetAttributes(attribute.Int("executor.refused_manifests", len(refusal.Manifests)))
		reason = "Refused"
	}
	tracing.End(span, reason)
	return client, err
}

func traceItem(ctx context.Context, it *decide.Item, attempt func(context.Context) error) error {
	ctx, span := tracing.Start(ctx, "Apply object",
		attribute.Int("manifest.ordinal", it.Ordinal),
		tracing.Text("object.resource", it.GVR.GroupResource().String()), tracing.Text("object.version", it.GVR.Version),
		tracing.Text("object.namespace", it.Namespace), tracing.Text("object.name", it.Name),
		attribute.String("manifest.strategy", string(it.Config.Strategy.Type)))
	err := attempt(ctx)
	tracing.End(span, cmp.Or(decide.GuardReason(err), tracing.Reason(err)))
	return err
}
