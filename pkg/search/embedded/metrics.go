package embedded

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "hub_apiserver"

var (
	rowsGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "search_embedded_resources", StabilityLevel: metrics.ALPHA,
		Help: "Number of resources that the embedded search engine has.",
	})
	termsGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "search_embedded_terms", StabilityLevel: metrics.ALPHA,
		Help: "Number of different values that the embedded search engine has.",
	})
	clustersGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "search_embedded_clusters", StabilityLevel: metrics.ALPHA,
		Help: "Number of clusters that have reported to the embedded search engine.",
	})
	durations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "search_embedded_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time that the embedded search engine takes for an operation.",
		Buckets: metrics.ExponentialBuckets(0.00002, 2, 18),
	}, []string{"operation"})
	scopeBuilds = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "search_embedded_scope_build_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time to find the resources of a scope that was not known.",
		Buckets: metrics.ExponentialBuckets(0.0001, 2, 14),
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(rowsGauge, termsGauge, clustersGauge, durations, scopeBuilds)
})

func observe(operation string, start time.Time) {
	durations.WithLabelValues(operation).Observe(time.Since(start).Seconds())
}

// measure sets the metrics of a state.
func (s *state) measure() {
	rowsGauge.Set(float64(s.visible))
	termsGauge.Set(float64(s.termCount))
	present := 0
	for _, c := range s.clusters {
		if c.present {
			present++
		}
	}
	clustersGauge.Set(float64(present))
}
