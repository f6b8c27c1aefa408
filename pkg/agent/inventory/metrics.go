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
	objects = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "resources", StabilityLevel: metrics.ALPHA,
		Help: "Objects in the inventory as it was reported last.",
	})
)

func init() {
	legacyregistry.MustRegister(reports, objects)
}
