package ingest

import (
	"strconv"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const subsystem = "hub_apiserver"

var (
	requests = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_requests_total",
		Help:           "Inventory reports that were answered, by HTTP status code.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"code"})
	overQuota = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "search_quota_refusals_total",
		Help:           "Inventory reports that were refused since the cluster would use more of search than it may.",
		StabilityLevel: metrics.ALPHA,
	})
	inFlight = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_requests_in_flight",
		Help:           "Inventory reports that are being taken.",
		StabilityLevel: metrics.ALPHA,
	})
	bodyBytes = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_body_bytes",
		Help:           "Bytes that were read of the body of an inventory report, decompressed.",
		Buckets:        metrics.ExponentialBuckets(256, 4, 12),
		StabilityLevel: metrics.ALPHA,
	})
	durationSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_duration_seconds",
		Help:           "Seconds to read and store an inventory report that was taken, by type (full or delta).",
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 18),
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
	resources = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_resources_total",
		Help:           "Resources in inventory reports, by what became of them: added, updated, deleted or refused.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	resyncs = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "search_sync_resyncs_total",
		Help:           "Reports of changes that were answered with the demand for a full report, because what they change is not known for sure.",
		StabilityLevel: metrics.ALPHA,
	})
	removedClusters = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "search_removed_clusters_total",
		Help:           "Clusters whose resources were forgotten because the cluster does not exist any more.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(requests, inFlight, bodyBytes, durationSeconds, resources, resyncs, removedClusters, overQuota)
}

func countAnswer(code int) { requests.WithLabelValues(strconv.Itoa(code)).Inc() }

func countApplied(full bool, took time.Duration, applied *search.Applied, refused int) {
	kind := "delta"
	if full {
		kind = "full"
	}
	durationSeconds.WithLabelValues(kind).Observe(took.Seconds())
	resources.WithLabelValues("added").Add(float64(applied.Added))
	resources.WithLabelValues("updated").Add(float64(applied.Updated))
	resources.WithLabelValues("deleted").Add(float64(applied.Deleted))
	resources.WithLabelValues("refused").Add(float64(refused))
}
