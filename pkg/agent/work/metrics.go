package work

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "work_agent"

var (
	passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "pass_duration_seconds",
		Help:           "Duration of one pass over a ManifestWork, by result.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2.5, 12),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	applyErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "apply_errors_total",
		Help:           "Failures to apply a manifest, by reason.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	watchedResources = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "watched_resources",
		Help:           "Resources of the managed cluster that are watched for drift.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(passSeconds, applyErrors, watchedResources)
}
