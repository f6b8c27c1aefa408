package feed

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "hub_apiserver"

const (
	resultApplied = "applied"
	resultRefused = "refused"
)

var (
	clusterStates = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "access_clusters", StabilityLevel: metrics.ALPHA,
		Help: "Managed clusters by state of their reported RBAC: known, or unknown if answers about them are Unknown.",
	}, []string{"state"})
	clusterAges = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "access_clusters_by_report_age", StabilityLevel: metrics.ALPHA,
		Help: "Managed clusters by age of their last report: 2m, 5m, 15m (at most that old), older or never.",
	}, []string{"age"})
	updates = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "access_updates_total", StabilityLevel: metrics.ALPHA,
		Help: "Updates of the index of RBAC from reports, by result (applied or refused).",
	}, []string{"result"})
	reads = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "access_cluster_reads_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times that all roles and bindings of a cluster were read from the search engine.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(clusterStates, clusterAges, updates, reads)
})

func (f *Feed) measure() {
	known := 0
	for _, c := range f.clusters {
		if c.state.Known {
			known++
		}
	}
	clusterStates.WithLabelValues("known").Set(float64(known))
	clusterStates.WithLabelValues("unknown").Set(float64(len(f.clusters) - known))
	counts := map[string]int{"2m": 0, "5m": 0, "15m": 0, "older": 0, "never": 0}
	for _, reported := range f.ages {
		counts[ageOf(reported)]++
	}
	for age, n := range counts {
		clusterAges.WithLabelValues(age).Set(float64(n))
	}
}

func ageOf(reported time.Time) string {
	age := time.Since(reported)
	switch {
	case reported.IsZero():
		return "never"
	case age <= 2*time.Minute:
		return "2m"
	case age <= 5*time.Minute:
		return "5m"
	case age <= 15*time.Minute:
		return "15m"
	}
	return "older"
}
