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
		Help:           "Time that one pass over a ManagedServiceAccount took, by its result.",
		Buckets:        metrics.ExponentialBuckets(0.0001, 4, 10),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	tokensIssued = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "tokens_issued_total",
		Help:           "Tokens that the managed cluster issued, by why they were requested.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"cause"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "token_failures_total",
		Help:           "What failed on the way of a token to the hub: serviceaccount, token, review, secret or status.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"step"})
	accountsByState = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "accounts",
		Help:           "ManagedServiceAccounts by the state in which the last pass left them: reported, or the reason why there is no token.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
)

func init() {
	legacyregistry.MustRegister(passSeconds, tokensIssued, failures, accountsByState)
}
