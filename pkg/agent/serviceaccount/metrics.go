package serviceaccount

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "managed_serviceaccount"

var (
	passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "pass_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of one pass over a ManagedServiceAccount, by result.",
		Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
	}, []string{"result"})
	tokensIssued = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "tokens_issued_total", StabilityLevel: metrics.ALPHA,
		Help: "Tokens that the managed cluster issued, by cause of the request.",
	}, []string{"cause"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "token_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Failures to report a token to the hub, by step: serviceaccount, token, review, secret or status.",
	}, []string{"step"})
)

func init() {
	legacyregistry.MustRegister(passSeconds, tokensIssued, failures)
}
