package permissions

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	sourceRequest = "request"
	sourceRepair  = "repair"
)

var deliveryDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Subsystem:      "hub_apiserver",
	Name:           "clusterpermission_delivery_duration_seconds",
	Help:           "Seconds to render a ClusterPermission and write its ManifestWork, by source (request or repair) and result (success or error).",
	Buckets:        metrics.ExponentialBuckets(0.001, 2, 14),
	StabilityLevel: metrics.ALPHA,
}, []string{"source", "result"})

func init() { legacyregistry.MustRegister(deliveryDuration) }

func observeDelivery(source string, started time.Time, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	deliveryDuration.WithLabelValues(source, result).Observe(time.Since(started).Seconds())
}
