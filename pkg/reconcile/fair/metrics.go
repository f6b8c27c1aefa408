package fair

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	waitingItems = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "fair_queue", Name: "depth", StabilityLevel: metrics.ALPHA,
		Help: "Objects that wait for a worker, by queue and lane (ordinary or priority).",
	}, []string{"name", "lane"})
	waitSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: "fair_queue", Name: "wait_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time that objects waited for a worker, by queue and lane.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 9),
	}, []string{"name", "lane"})
	stuckWorkers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "stuck_workers", StabilityLevel: metrics.ALPHA,
		Help: "Workers that did not return from an object when the readiness was checked last, by queue.",
	}, []string{"name"})
)

func init() {
	legacyregistry.MustRegister(waitingItems, waitSeconds, stuckWorkers)
}
