package accessreview

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "work_agent"

var (
	reviews = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_reviews_total",
		Help:           "Number of SubjectAccessReviews sent to the managed cluster for executors, by result: allowed, denied or error.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	lookups = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_review_cache_total",
		Help:           "Number of lookups of an executor's access in the cache, by result: hit or miss.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	invalidations = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "access_invalidations_total",
		Help:           "Number of cached access decisions of executors that a change of RBAC on the managed cluster invalidated.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(reviews, lookups, invalidations)
}
