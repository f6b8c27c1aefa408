package transition

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var dropped = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem: "hub_apiserver", Name: "dropped_events_total", StabilityLevel: metrics.ALPHA,
	Help: "Number of Events that were not recorded because their namespace has too many.",
})

func init() { legacyregistry.MustRegister(dropped) }
