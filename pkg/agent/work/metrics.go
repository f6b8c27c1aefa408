package work

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "work_agent"

var (
	passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "pass_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of one pass over a ManifestWork, by result.",
		Buckets: metrics.ExponentialBuckets(0.001, 2.5, 12),
	}, []string{"result"})
	applyErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "apply_errors_total", StabilityLevel: metrics.ALPHA,
		Help: "Failures to apply a manifest, by reason.",
	}, []string{"reason"})
	watchedResources = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "watched_resources", StabilityLevel: metrics.ALPHA,
		Help: "Resources of the managed cluster that are watched for drift.",
	})
)

func init() {
	legacyregistry.MustRegister(passSeconds, applyErrors, watchedResources)
}
