package serviceaccount

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "managed_serviceaccount"

var (
	passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "pass_duration_seconds",
		Help:           "Duration of one pass over a ManagedServiceAccount, by result.",
		Buckets:        metrics.ExponentialBuckets(0.0001, 4, 10),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	tokensIssued = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "tokens_issued_total",
		Help:           "Tokens that the managed cluster issued, by cause of the request.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"cause"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "token_failures_total",
		Help:           "Failures to report a token to the hub, by step: serviceaccount, token, review, secret or status.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"step"})
)

func init() {
	legacyregistry.MustRegister(passSeconds, tokensIssued, failures)
}
