// Package ingest stores the reports of clusters in a search engine. It serves the upstream sync protocol
// (pkg/apis/search/inventory) over HTTP.
//
//	request → slots → body → Decode → Engine.Apply → totals
//
// The caller authorizes the reporter.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// resync is the total in a response that requests a full report. No collector can have this total,
// so even a collector without resources sends a full report.
const resync = -1

// Config contains the dependencies and limits of a Handler.
type Config struct {
	// Engine stores the reports. Its owner closes it after Run has returned.
	Engine search.Engine
	// HubCluster is the name of the cluster that is the hub itself, such as local-cluster. It is
	// empty if the hub does not report. It requires no ManagedCluster.
	HubCluster string
	// ClusterExists reports whether a ManagedCluster exists. It is called for every report.
	ClusterExists func(cluster string) bool
	// ClusterDeleted reports whether no ManagedCluster exists, without a cache. It is called before a cluster is removed.
	ClusterDeleted func(ctx context.Context, cluster string) (bool, error)
	// Cluster returns the ManagedCluster that describes a cluster, or nil if there is
	// none. If Cluster is nil, there are no resources of kind Cluster.
	Cluster func(cluster string) *clusterv1.ManagedCluster
	// Clusters returns the names of all ManagedClusters, or an error while the list is incomplete.
	// The resources of other clusters are removed.
	Clusters func() ([]string, error)
	// Version is the version in responses to collectors.
	Version string

	// Limits bound a single report.
	Limits Limits
	// ClusterResources bounds the stored resources of one cluster; 500,000 by default. ClusterBytes
	// bounds their approximate memory; 1 GiB by default.
	ClusterResources int
	ClusterBytes     int64
	// Reports bounds the concurrent reports, except those of the hub; 25 by default.
	Reports int
	// LargeReports bounds the concurrent reports of LargeBytes or more, including reports of the
	// hub; 5 of 20 MB by default. The size of a report is the size of the decompressed body, or its
	// approximate memory if that is larger.
	LargeReports int
	LargeBytes   int64
	// LargeTotal bounds the total memory of all large reports, in bytes; 1 GiB by default. A single
	// report may use more, up to its Limits.
	LargeTotal int64
	// Timeout bounds the time from the header of a report to the response; 2 minutes by default.
	Timeout time.Duration
	// SilentAfter is the age of the last report after which a cluster is silent; 15 minutes by
	// default. Collectors report every 5 minutes.
	SilentAfter time.Duration
	// Clock is the real clock by default.
	Clock clock.WithTicker
}

// Handler serves reports. It is safe for concurrent use.
type Handler struct {
	config  Config
	started time.Time
	slots   *slots
	usage   *usage
	notify  chan struct{}
	// resources contains the properties of the resources of kind Cluster that this process has stored, by
	// cluster. They are not part of reports. Nil stands for a cluster without such a resource.
	resources sync.Map

	known  *cached[map[string]search.ClusterState]
	states *cached[[]State]
}

// New returns a Handler. Run starts its background work.
func New(config Config) (*Handler, error) {
	switch {
	case config.Engine == nil:
		return nil, errors.New("an Engine is required")
	case config.ClusterExists == nil, config.ClusterDeleted == nil, config.Clusters == nil:
		return nil, errors.New("ClusterExists, ClusterDeleted and Clusters are required")
	}
	config.Limits = config.Limits.withDefaults()
	orDefault(&config.ClusterResources, DefaultClusterResources)
	orDefault(&config.ClusterBytes, DefaultClusterBytes)
	orDefault(&config.Reports, 25)
	orDefault(&config.LargeReports, 5)
	orDefault(&config.LargeBytes, 20_000_000)
	orDefault(&config.LargeTotal, 1<<30)
	orDefault((*int64)(&config.Timeout), int64(2*time.Minute))
	orDefault((*int64)(&config.SilentAfter), int64(15*time.Minute))
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	h := &Handler{
		config:  config,
		started: config.Clock.Now(),
		slots: &slots{
			maxReports: config.Reports, maxLarge: config.LargeReports, largeBytes: config.LargeBytes, maxHeld: config.LargeTotal,
			busy: map[string]struct{}{},
		},
		usage:  &usage{resources: config.ClusterResources, bytes: config.ClusterBytes, clusters: map[string]used{}},
		notify: make(chan struct{}, 1),
	}
	h.known = newCached(config.Clock, h.loadKnown)
	h.states = newCached(config.Clock, h.loadStates)
	return h, nil
}

// Sync returns the handler of the reports of a cluster. The caller must check that the reporter is
// allowed to report for that cluster.
func (h *Handler) Sync(cluster string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inFlight.Inc()
		defer inFlight.Dec()
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout(r.Context()))
		defer cancel()
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", cluster))

		answer, err := h.sync(ctx, w, r, cluster)
		if err != nil {
			code := fail(ctx, w, err)
			countAnswer(code)
			klog.FromContext(ctx).V(2).Info("Refused a report", "code", code, "err", err)
			return
		}
		write(ctx, w, http.StatusOK, answer)
		countAnswer(http.StatusOK)
	})
}

// timeout returns the timeout of a report. It is shorter than the deadline of the request, so that
// the collector receives the reason.
func (h *Handler) timeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(h.config.Timeout, time.Until(deadline)*9/10)
	}
	return h.config.Timeout
}

// sync processes a report. It returns API errors.
func (h *Handler) sync(ctx context.Context, w http.ResponseWriter, r *http.Request, cluster string) (*inventory.Response, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, apierrors.NewMethodNotSupported(inventories, r.Method)
	}
	if err := h.exists(ctx, cluster); err != nil {
		return nil, err
	}
	slot, err := h.slots.acquire(cluster, h.hub(cluster))
	if err != nil {
		return nil, err
	}
	defer slot.release()

	started := h.config.Clock.Now()
	report, response, bytes, err := h.read(ctx, w, r, slot)
	if err != nil {
		return nil, readFailure(err)
	}
	refused := refusedResources(response)
	if report.Full && len(report.Put) == 0 && refused > 0 {
		// The report contains no resources of this cluster, so it must not remove the resources of
		// the cluster.
		return nil, allRefused(response)
	}
	// The cluster may have been deleted while the report was read, which may take minutes.
	if err := h.exists(ctx, cluster); err != nil {
		return nil, err
	}
	report.Time = h.config.Clock.Now()
	applied, err := h.apply(ctx, report, bytes)
	if errors.Is(err, ErrTooLarge) {
		return nil, readFailure(err)
	}
	if err != nil {
		return nil, engineFailure(ctx, err)
	}
	response.Version, response.Access = h.config.Version, true
	if applied == nil {
		resyncs.Inc()
		response.TotalResources, response.TotalEdges = resync, resync
		return response, nil
	}
	response.TotalAdded, response.TotalUpdated, response.TotalDeleted = applied.Added, applied.Updated, applied.Deleted
	response.TotalEdgesAdded, response.TotalEdgesDeleted = applied.EdgesAdded, applied.EdgesDeleted
	response.TotalResources, response.TotalEdges = applied.Resources, applied.Edges
	took := h.config.Clock.Since(started)
	countApplied(report.Full, took, applied, refused)
	klog.FromContext(ctx).V(4).Info("Stored a report", "full", report.Full, "resources", len(report.Put), "refused", refused, "took", took)
	return response, nil
}

// read decodes the body of a request.
func (h *Handler) read(ctx context.Context, w http.ResponseWriter, r *http.Request, slot *slot) (*search.Report, *inventory.Response, int64, error) {
	boundReads(ctx, w)
	body, err := openBody(ctx, w, r, slot, h.config.LargeBytes, h.config.Limits.BodyBytes)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { bodyBytes.Observe(float64(body.bytes)) }()
	full := r.Header.Get(inventory.OverwriteHeader) == "true"
	return decode(body, slot.cluster, h.hub(slot.cluster), full, h.config.Limits, slot.hold)
}

// apply stores a report. If the report contains changes and the state of the cluster is uncertain,
// apply stores nothing and returns nil without an error.
func (h *Handler) apply(ctx context.Context, report *search.Report, bytes int64) (*search.Applied, error) {
	known, err := h.known.get(ctx)
	if err != nil {
		return nil, err
	}
	before, reported := known[report.Cluster]
	// Resources of the hub and resources of managed clusters have different scopes.
	mistaken := reported && before.Hub != report.Hub
	with, exceeded := h.usage.exceeded(report, bytes, before)
	switch {
	case !report.Full && (mistaken || before.Incomplete):
		return nil, nil
	case exceeded && report.Full:
		return nil, h.usage.refusal(report.Cluster, with)
	case exceeded:
		// A full report shows the actual size.
		return nil, nil
	case mistaken:
		if err := h.config.Engine.RemoveCluster(ctx, report.Cluster); err != nil {
			return nil, fmt.Errorf("removing the previous resources of %s: %w", report.Cluster, err)
		}
		h.resources.Delete(report.Cluster)
	}
	resource, err := h.storedResource(ctx, report.Cluster)
	if err != nil {
		return nil, err
	}
	report.Keep = search.ClusterUIDPrefix + report.Cluster
	applied, err := h.config.Engine.Apply(ctx, report)
	if report.Full || before.Reported.IsZero() {
		h.known.invalidate()
		h.states.invalidate()
	}
	if err != nil {
		return nil, fmt.Errorf("storing a report of %s: %w", report.Cluster, err)
	}
	if resource != nil {
		// Collectors compare the total with the number of resources that they have reported.
		applied.Resources--
	}
	h.usage.set(report.Cluster, applied.Resources, with.bytes)
	if report.Full {
		// The number of Nodes may have changed.
		if err := h.UpdateCluster(ctx, report.Cluster); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot update the resource of kind Cluster yet", "err", err)
		}
	}
	return applied, nil
}

func (h *Handler) hub(cluster string) bool {
	return cluster != "" && cluster == h.config.HubCluster
}

// exists returns an API error if a cluster does not exist, or if its existence is not known yet.
func (h *Handler) exists(ctx context.Context, cluster string) error {
	if h.hub(cluster) || h.config.ClusterExists(cluster) {
		return nil
	}
	if _, err := h.config.Clusters(); err != nil {
		klog.FromContext(ctx).V(2).Info("The ManagedClusters are not listed", "err", err)
		return serving.Unavailable("the ManagedClusters are not listed yet; try again later")
	}
	return apierrors.NewNotFound(managedClusters, cluster)
}

func refusedResources(response *inventory.Response) int {
	return len(response.AddErrors) + len(response.UpdateErrors)
}

func allRefused(response *inventory.Response) error {
	first := append(response.AddErrors, response.UpdateErrors...)[0]
	return newStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf(
		"the full report has no valid resource, so the previous report is kept; the first error is for %q: %s", first.ResourceUID, first.Message))
}
