// Package ingest takes the reports of clusters into a search engine: the public sync
// protocol (pkg/apis/search/inventory) over HTTP.
//
//	request → slots → body → Decode → Engine.Apply → totals
//
// Who may report for a cluster is decided before, and what is found by whom elsewhere.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// resync is the total in answers that demand a full report. It equals no number that
// a collector can have counted, so that even one that has nothing to report begins again.
const resync = -1

// Config is what a Handler needs.
type Config struct {
	// Engine keeps what is reported. Its owner closes it, after Run has returned.
	Engine search.Engine
	// HubCluster is the cluster that is the hub itself, such as local-cluster; empty if the
	// hub does not report. It needs no ManagedCluster.
	HubCluster string
	// ClusterExists tells whether there is a ManagedCluster. It is asked for every report.
	ClusterExists func(cluster string) bool
	// Clusters are the names of all ManagedClusters. It returns an error as long as they are
	// not known completely; what is not among them is forgotten.
	Clusters func() ([]string, error)
	// Version is told to collectors.
	Version string

	// Limits bound a single report.
	Limits Limits
	// ClusterResources bounds the resources that are stored of one cluster, 500,000 by default,
	// and ClusterBytes about how much memory they take, 1 GiB by default.
	ClusterResources int
	ClusterBytes     int64
	// Reports bounds the reports that are taken at a time, those of the hub apart; 25 by default.
	Reports int
	// LargeReports bounds how many reports of LargeBytes and more are taken at a time, the hub's included; 5 of 20 MB
	// by default. What counts is the decompressed body, and about what the report takes in memory.
	LargeReports int
	LargeBytes   int64
	// LargeTotal bounds what large reports take in memory together, in bytes; 1 GiB by default. A
	// single one may take more, as far as its Limits go.
	LargeTotal int64
	// Timeout bounds how long a report may take, from its header to the answer; 2 minutes by default.
	Timeout time.Duration
	// SilentAfter is after how long without a report a cluster is silent; 15 minutes
	// by default. Collectors report every 5 minutes.
	SilentAfter time.Duration
	// RemoveAfter is for how long a ManagedCluster must be gone until its resources are forgotten;
	// 5 seconds by default.
	RemoveAfter time.Duration
	// Clock is the real one by default.
	Clock clock.WithTicker
}

// Handler takes reports. Make one with New; it is safe for concurrent use.
type Handler struct {
	config  Config
	started time.Time
	slots   *slots
	usage   *usage
	notify  chan struct{}

	known  *cached[map[string]search.ClusterState]
	states *cached[[]State]
}

// New returns a Handler. It starts nothing; see Run. The error names what is missing in
// the Config.
func New(config Config) (*Handler, error) {
	switch {
	case config.Engine == nil:
		return nil, errors.New("reports need a search engine")
	case config.ClusterExists == nil, config.Clusters == nil:
		return nil, errors.New("reports need to know which clusters exist")
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
	orDefault((*int64)(&config.RemoveAfter), int64(5*time.Second))
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

// Sync takes one report of a cluster. Whoever serves it has checked that the caller may
// report for that cluster.
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
			klog.FromContext(ctx).V(2).Info("a report was not taken", "code", code, "err", err)
			return
		}
		write(ctx, w, http.StatusOK, answer)
		countAnswer(http.StatusOK)
	})
}

// timeout is how long a report may take. It ends before whoever serves the request gives up, so
// that the collector is told why.
func (h *Handler) timeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(h.config.Timeout, time.Until(deadline)*9/10)
	}
	return h.config.Timeout
}

// sync takes a report. Its error is a Status.
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
		// It says nothing about this cluster, so that it must not empty it.
		return nil, nothingTaken(response)
	}
	// Reading may have taken minutes.
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
	response.Version = h.config.Version
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
	klog.FromContext(ctx).V(4).Info("took a report", "full", report.Full, "resources", len(report.Put), "refused", refused, "took", took)
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

// apply stores a report. It returns nil without an error for changes of something that
// is not known for sure; nothing is stored then.
func (h *Handler) apply(ctx context.Context, report *search.Report, bytes int64) (*search.Applied, error) {
	known, err := h.known.get(ctx)
	if err != nil {
		return nil, err
	}
	before, reported := known[report.Cluster]
	// What was stored as the hub's is found by others than what was stored as a managed cluster's.
	mistaken := reported && before.Hub != report.Hub
	with, exceeded := h.usage.exceeded(report, bytes, before)
	switch {
	case !report.Full && (mistaken || before.Incomplete):
		return nil, nil
	case exceeded && report.Full:
		return nil, h.usage.refusal(report.Cluster, with)
	case exceeded:
		// A full report says how much it really is.
		return nil, nil
	case mistaken:
		if err := h.config.Engine.RemoveCluster(ctx, report.Cluster); err != nil {
			return nil, fmt.Errorf("removing what %s reported before: %w", report.Cluster, err)
		}
	}
	applied, err := h.config.Engine.Apply(ctx, report)
	if report.Full || !reported {
		h.known.invalidate()
		h.states.invalidate()
	}
	if err != nil {
		return nil, fmt.Errorf("storing a report of %s: %w", report.Cluster, err)
	}
	if applied != nil {
		h.usage.set(report.Cluster, applied.Resources, with.bytes)
	}
	return applied, nil
}

func (h *Handler) hub(cluster string) bool {
	return cluster != "" && cluster == h.config.HubCluster
}

// exists returns a Status for a cluster that is not there, or of which that is not known yet.
func (h *Handler) exists(ctx context.Context, cluster string) error {
	if h.hub(cluster) || h.config.ClusterExists(cluster) {
		return nil
	}
	if _, err := h.config.Clusters(); err != nil {
		klog.FromContext(ctx).V(2).Info("the ManagedClusters are not known", "err", err)
		return terms.Unavailable("it is not known yet which clusters exist")
	}
	return apierrors.NewNotFound(managedClusters, cluster)
}

func refusedResources(response *inventory.Response) int {
	return len(response.AddErrors) + len(response.UpdateErrors)
}

func nothingTaken(response *inventory.Response) error {
	first := append(response.AddErrors, response.UpdateErrors...)[0]
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("none of the resources of a full report can be taken, and what was reported before is kept; the first, %q: %s",
			first.ResourceUID, first.Message),
	}}
}
