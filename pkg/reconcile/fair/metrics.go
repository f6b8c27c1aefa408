package fair

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "fair_queue"

var (
	waitingItems = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "depth", StabilityLevel: metrics.ALPHA,
		Help: "Objects that wait for a worker, by queue and lane (ordinary or priority).",
	}, []string{"name", "lane"})
	waitSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "wait_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time that objects waited for a worker, by queue and lane.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 9),
	}, []string{"name", "lane"})
	busyWorkers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "busy_workers", StabilityLevel: metrics.ALPHA,
		Help: "Workers that handle an object, by queue and the lane that they belong to.",
	}, []string{"name", "lane"})
	stuckWorkers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "stuck_workers", StabilityLevel: metrics.ALPHA,
		Help: "Workers that do not return from an object, by queue.",
	}, []string{"name"})
	stuckTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "stuck_workers_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a worker was found that did not return from an object, by queue.",
	}, []string{"name"})
)

func init() {
	legacyregistry.MustRegister(waitingItems, waitSeconds, busyWorkers, stuckWorkers, stuckTotal)
}
