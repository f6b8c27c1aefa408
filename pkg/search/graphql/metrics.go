package graphql

import (
	"sync"
	"time"

	graphqlgo "github.com/graph-gophers/graphql-go"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	duration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: "hub_apiserver", Name: "search_graphql_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Seconds to execute a GraphQL query, without writing the response, by result (success or error).",
		Buckets: metrics.ExponentialBuckets(0.0001, 2, 18),
	}, []string{"result"})
	active = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "search_graphql_active", StabilityLevel: metrics.ALPHA,
		Help: "Number of open GraphQL connections and subscriptions.",
	}, []string{"what"})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(duration, active) })

func observe(started time.Time, response *graphqlgo.Response) {
	result := "success"
	if len(response.Errors) > 0 {
		result = "error"
	}
	duration.WithLabelValues(result).Observe(time.Since(started).Seconds())
}
