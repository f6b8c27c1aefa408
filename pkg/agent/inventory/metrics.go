package inventory

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "cluster_inventory"

var (
	reports = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "reports_total", StabilityLevel: metrics.ALPHA,
		Help: "Reports to the hub by kind (full, delta or heartbeat) and result (success, error or unserved).",
	}, []string{"kind", "result"})
	reportSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "report_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time that one report to the hub took, by its kind and result.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 10),
	}, []string{"kind", "result"})
	mismatches = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "mismatches_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of full reports because the inventory on the hub differed from the cluster.",
	})
	objects = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "resources", StabilityLevel: metrics.ALPHA,
		Help: "Objects in the inventory as it was reported last.",
	})
	edges = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "edges", StabilityLevel: metrics.ALPHA,
		Help: "Relations between objects in the inventory as it was reported last.",
	})
	watched = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "watched_resources", StabilityLevel: metrics.ALPHA,
		Help: "Kinds of resources of the cluster that are watched.",
	})
	unextracted = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unextracted_total", StabilityLevel: metrics.ALPHA,
		Help: "Objects of which only metadata is reported because the rest is not as expected, by resource.",
	}, []string{"resource"})
)

func init() {
	legacyregistry.MustRegister(reports, reportSeconds, mismatches, objects, edges, watched, unextracted)
}
