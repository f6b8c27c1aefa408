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
		Subsystem: "hub_apiserver", Name: "search_scope_compile_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of computing the search permissions of a caller in seconds, by source (rbac or reviews) and result (success or error).",
		Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
	}, []string{"by", "result"})
	cachedScopes = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "search_scope_cache_entries", StabilityLevel: metrics.ALPHA,
		Help: "Number of callers with cached search permissions.",
	})
	asksReviews = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "search_scope_by_reviews", StabilityLevel: metrics.ALPHA,
		Help: "1 if the search permissions of callers come from SubjectAccessReviews, 0 if they are computed from RBAC.",
	})
	disagreements = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "search_scope_disagreements_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of sampled decisions by RBAC that permanently differ from the decision of the hub.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(compileDuration, cachedScopes, asksReviews, disagreements)
})
