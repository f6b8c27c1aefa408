package visibility

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	byRBAC    = "rbac"
	byReviews = "reviews"
)

var (
	compileDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      "hub_apiserver",
		Name:           "search_scope_compile_duration_seconds",
		Help:           "Seconds to find out what a caller may find, by what decides it (rbac or reviews) and result (success or error).",
		Buckets:        metrics.ExponentialBuckets(0.0001, 4, 10),
		StabilityLevel: metrics.ALPHA,
	}, []string{"by", "result"})
	cachedScopes = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      "hub_apiserver",
		Name:           "search_scope_cache_entries",
		Help:           "Number of callers for whom it is kept what they may find.",
		StabilityLevel: metrics.ALPHA,
	})
	asksReviews = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      "hub_apiserver",
		Name:           "search_scope_by_reviews",
		Help:           "1 if the hub is asked what each caller may find, 0 if that is read from RBAC.",
		StabilityLevel: metrics.ALPHA,
	})
	disagreements = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      "hub_apiserver",
		Name:           "search_scope_disagreements_total",
		Help:           "Number of decisions read from RBAC that the hub lastingly decided otherwise.",
		StabilityLevel: metrics.ALPHA,
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(compileDuration, cachedScopes, asksReviews, disagreements)
})
