package access

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "work_agent"

var (
	reviews = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_reviews_total",
		Help:           "SubjectAccessReviews that the managed cluster was asked for executors, by result: allowed, denied or error.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	lookups = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_review_cache_total",
		Help:           "Questions about what executors may do, by whether the answer was known: hit or miss.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	invalidations = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_invalidations_total",
		Help:           "Answers about what executors may do that were forgotten because RBAC of the managed cluster changed.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(reviews, lookups, invalidations)
}
