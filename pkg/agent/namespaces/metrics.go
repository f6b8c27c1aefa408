package namespaces

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "cluster_namespace"

var (
	passSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "pass_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of one pass over a namespace, by result.",
		Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
	}, []string{"result"})
	writes = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes of ClusterNamespaces on the hub, by operation: create, update or delete.",
	}, []string{"operation"})
	waiting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "waiting", StabilityLevel: metrics.ALPHA,
		Help: "Namespaces that are not reported because the quota of the hub is exhausted.",
	})
)

func init() {
	legacyregistry.MustRegister(passSeconds, writes, waiting)
}
