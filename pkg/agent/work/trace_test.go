package work

import (
	"context"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	requestTrace = "0af7651916cd43dd8448eb211c80319c"
	requestSpan  = "b7ad6b7169203331"
)

// tracedWork returns a ManifestWork of a sampled request whose status contains a generation.
func tracedWork(generation, reported int64) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: "cluster1", Name: "traced", Generation: generation,
		Annotations: map[string]string{workv1.TraceparentAnnotation: "00-" + requestTrace + "-" + requestSpan + "-01"},
	}}
	if reported > 0 {
		work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: reported}}
	}
	return work
}

// testTracer returns a tracer at a fixed time. It records the spans of sampled traces, and no others.
func testTracer(t *testing.T) *tracer {
	t.Helper()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder()))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	now := time.Now()
	return newTracer(provider, func() time.Time { return now })
}

// joined starts and ends the span of a pass, and reports whether it belongs to the trace of the request.
func joined(t *testing.T, tracer *tracer, work *workv1.ManifestWork, st *workState) bool {
	t.Helper()
	ctx, span := tracer.start(t.Context(), work, st)
	defer span.End()
	current := trace.SpanFromContext(ctx)
	belongs := current.SpanContext().TraceID().String() == requestTrace
	if current.IsRecording() != belongs {
		t.Errorf("the span of trace %s is recorded = %t, want only spans of the request's trace", current.SpanContext().TraceID(), current.IsRecording())
	}
	return belongs
}

func TestPassJoinsTrace(t *testing.T) {
	now := metav1.Now()
	annotated := func(value string) *workv1.ManifestWork {
		work := tracedWork(1, 0)
		work.Annotations[workv1.TraceparentAnnotation] = value
		return work
	}
	deleted := tracedWork(2, 1)
	deleted.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		work *workv1.ManifestWork
		want bool
	}{
		"new":                 {tracedWork(1, 0), true},
		"changed":             {tracedWork(2, 1), true},
		"already reported":    {tracedWork(2, 2), false},
		"deleted":             {deleted, false},
		"without annotation":  {&workv1.ManifestWork{}, false},
		"unsampled":           {annotated("00-" + requestTrace + "-" + requestSpan + "-00"), false},
		"malformed":           {annotated("00-" + requestTrace), false},
		"large":               {annotated(strings.Repeat("0", 200<<10)), false},
		"with baggage":        {annotated("00-" + requestTrace + "-" + requestSpan + "-01;secret=1"), false},
		"of the next version": {annotated("01-" + requestTrace + "-" + requestSpan + "-01-more"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := joined(t, testTracer(t), test.work, &workState{}); got != test.want {
				t.Errorf("start(%v) joins the trace = %t, want %t", test.work.ObjectMeta, got, test.want)
			}
		})
	}
}

func TestPassesOverOneGenerationJoinOnlyAFewTimes(t *testing.T) {
	tracer, st := testTracer(t), &workState{}
	count := func(work *workv1.ManifestWork) int {
		n := 0
		for range 3 * maxJoined {
			if joined(t, tracer, work, st) {
				n++
			}
		}
		return n
	}
	if got := count(tracedWork(1, 0)); got != maxJoined {
		t.Errorf("passes over generation 1 that join the trace = %d, want %d", got, maxJoined)
	}
	if got := count(tracedWork(2, 0)); got != maxJoined {
		t.Errorf("passes over generation 2 that join the trace = %d, want %d", got, maxJoined)
	}
}

func TestAnnotationsDoNotCauseUnlimitedSpans(t *testing.T) {
	tracer, n := testTracer(t), 0
	for generation := range int64(10 * joinedBurst) {
		if joined(t, tracer, tracedWork(generation+1, 0), &workState{}) {
			n++
		}
	}
	if n != joinedBurst {
		t.Errorf("passes that join traces at one time = %d, want %d", n, joinedBurst)
	}
}

func TestNoTracingNoSpan(t *testing.T) {
	_, err := newTracer(nil, time.Now).pass(t.Context(), tracedWork(1, 0), &workState{}, func(ctx context.Context) (outcome, error) {
		if ctx != t.Context() {
			t.Error("a pass without a provider has another context, want the same one")
		}
		return outcome{}, nil
	})
	if err != nil {
		t.Error(err)
	}
}
