package postgres

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var operationDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Subsystem: "hub_apiserver", Name: "search_postgres_duration_seconds", StabilityLevel: metrics.ALPHA,
	Help:    "Seconds of operations of the search engine on PostgreSQL, by operation and result (success or error).",
	Buckets: metrics.ExponentialBuckets(0.0005, 2, 16),
}, []string{"operation", "result"})

var compared = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem: "hub_apiserver", Name: "search_postgres_compared_rows_total", StabilityLevel: metrics.ALPHA,
	Help: "Rows that were compared in this process, because PostgreSQL could not evaluate a comparison.",
})

var replicaReads = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem: "hub_apiserver", Name: "search_postgres_replica_reads_total", StabilityLevel: metrics.ALPHA,
	Help: "Searches for which the server has looked for a replica, by result: sent to a replica, failed there, or sent to the primary because no replica was within the bound (stale).",
}, []string{"result"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(operationDuration, compared, replicaReads) })

// observe records an operation and classifies its error. It is deferred with the returned error.
func observe(operation string, started time.Time, err *error) {
	result := "success"
	if *err != nil {
		result = "error"
		*err = classified(*err)
	}
	operationDuration.WithLabelValues(operation, result).Observe(time.Since(started).Seconds())
}
