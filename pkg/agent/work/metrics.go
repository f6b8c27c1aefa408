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
		Help:           "Time that one pass over a ManifestWork took, by its result.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2.5, 12),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	applyErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "apply_errors_total",
		Help:           "Manifests that could not be applied, by the reason that the managed cluster gave.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	driftRepairs = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "drift_repairs_total",
		Help:           "Writes that undid what others had done to applied objects.",
		StabilityLevel: metrics.ALPHA,
	})
	watchedResources = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "watched_resources",
		Help:           "Resources of the managed cluster that are watched for drift.",
		StabilityLevel: metrics.ALPHA,
	})
	worksByState = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "works",
		Help:           "ManifestWorks by the state in which the last pass left them: applied, failed, refused or deleting.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
)

func init() {
	legacyregistry.MustRegister(passSeconds, applyErrors, driftRepairs, watchedResources, worksByState)
}
