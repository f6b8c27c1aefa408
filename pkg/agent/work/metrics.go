package work

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Subsystem: "work_agent", Name: "pass_duration_seconds", StabilityLevel: metrics.ALPHA,
	Help:    "Duration of one pass over a ManifestWork, by result.",
	Buckets: metrics.ExponentialBuckets(0.001, 2.5, 12),
}, []string{"result"})

func init() { legacyregistry.MustRegister(passSeconds) }
