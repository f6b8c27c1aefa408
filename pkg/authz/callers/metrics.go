package callers

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	open = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "caller_open", StabilityLevel: metrics.ALPHA,
		Help: "Number of open requests and watches that use the limits of callers, by kind.",
	}, []string{"what"})
	refused = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "caller_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of requests that were refused because of a limit of callers, by the limit.",
	}, []string{"what"})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(open, refused) })
