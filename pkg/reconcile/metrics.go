package reconcile

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var objectsByState = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "reconcile", Name: "objects", StabilityLevel: metrics.ALPHA,
	Help: "Objects by the state in which a loop left them last, by loop. Loops that know no other state have only those that wait for a retry (failed).",
}, []string{"name", "state"})

func init() { legacyregistry.MustRegister(objectsByState) }
