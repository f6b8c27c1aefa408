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
		Subsystem: subsystem, Name: "search_sync_requests_total", StabilityLevel: metrics.ALPHA,
		Help: "Inventory reports, by HTTP status code of the response.",
	}, []string{"code"})
	overQuota = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "search_quota_refusals_total", StabilityLevel: metrics.ALPHA,
		Help: "Inventory reports that were refused because the cluster would exceed its limits.",
	})
	inFlight = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "search_sync_requests_in_flight", StabilityLevel: metrics.ALPHA,
		Help: "Inventory reports in progress.",
	})
	bodyBytes = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "search_sync_body_bytes", StabilityLevel: metrics.ALPHA,
		Help:    "Decompressed bytes of the body of an inventory report.",
		Buckets: metrics.ExponentialBuckets(256, 4, 12),
	})
	durationSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "search_sync_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Seconds to read and store an inventory report, by type (full or delta).",
		Buckets: metrics.ExponentialBuckets(0.0005, 2, 18),
	}, []string{"type"})
	resources = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "search_sync_resources_total", StabilityLevel: metrics.ALPHA,
		Help: "Resources in inventory reports, by result: added, updated, deleted or refused.",
	}, []string{"result"})
	resyncs = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "search_sync_resyncs_total", StabilityLevel: metrics.ALPHA,
		Help: "Delta reports that were answered with a request for a full report, because the state that they change is uncertain.",
	})
	removedClusters = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "search_removed_clusters_total", StabilityLevel: metrics.ALPHA,
		Help: "Deleted clusters with resources that search has removed.",
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
