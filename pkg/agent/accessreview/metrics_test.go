package accessreview

import (
	"context"
	"errors"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
)

// counters returns the metrics of this package by name and result.
func counters(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			if metric.GetCounter() != nil {
				values[name] = metric.GetCounter().GetValue()
			}
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.cluster.setJudge(func(_ context.Context, _ types.NamespacedName, request Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		if request == getFar {
			return authorizationv1.SubjectAccessReviewStatus{}, errors.New("out of order")
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: request.Verb == "get"}, nil
	})
	before := counters(t)
	f.review(alice, 0, getA, getB, deleteA)
	f.review(alice, 0, getA, deleteA)
	if _, err := f.Review(t.Context(), alice, []Request{getFar}, 0); err == nil {
		t.Error("Review() = nil, want an error")
	}
	f.bind(everywhere, "reader", alice)
	after := counters(t)
	for name, want := range map[string]float64{
		"work_agent_access_reviews_total allowed":   2,
		"work_agent_access_reviews_total denied":    1,
		"work_agent_access_reviews_total error":     1,
		"work_agent_access_review_cache_total hit":  2,
		"work_agent_access_review_cache_total miss": 4,
		"work_agent_access_invalidations_total":     2,
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("metric %s grew by %v, want %v", name, got, want)
		}
	}
}
