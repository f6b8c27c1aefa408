package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// State describes the reports of a cluster.
type State struct {
	Name string
	// Hub is true for the hub itself.
	Hub bool
	// Resources and Edges are the numbers of stored resources and edges.
	Resources, Edges int
	// Secrets is the number of Resources that are Secrets of a managed cluster.
	Secrets int
	// LastReport is zero if the cluster has not reported.
	LastReport time.Time
	// Silent is true if the last report is too old.
	Silent bool
	// Absent is true if the cluster exists and has never reported.
	Absent bool
	// Incomplete is true if the engine requires a full report. The cluster is then requested to
	// send one.
	Incomplete bool
	// Removed is true if the cluster no longer exists. Its resources are about to be
	// removed.
	Removed bool
}

// Stale reports whether the resources of a managed cluster are unknown or may be out of date.
func (s *State) Stale() bool {
	return !s.Hub && !s.Removed && (s.Absent || s.Incomplete || s.Silent)
}

// States returns the states of all clusters that exist or have reported, by name. They are at most
// one second old. Callers share them and must not change them. States returns an error if the
// engine or the list of clusters is unavailable.
func (h *Handler) States(ctx context.Context) ([]State, error) {
	return h.states.get(ctx)
}

func (h *Handler) loadStates(ctx context.Context) ([]State, error) {
	known, err := h.known.get(ctx)
	if err != nil {
		return nil, err
	}
	existing, err := h.existing()
	if err != nil {
		return nil, err
	}
	now := h.config.Clock.Now()
	states := make([]State, 0, len(known)+len(existing))
	for name, state := range known {
		if h.resourceOf(name) != nil {
			state.Resources = max(0, state.Resources-1)
		}
		states = append(states, State{
			Name: name, Hub: state.Hub, Resources: state.Resources, Edges: state.Edges, Secrets: state.Secrets,
			LastReport: state.Reported,
			Silent:     !state.Reported.IsZero() && now.Sub(state.Reported) > h.config.SilentAfter,
			Absent:     state.Reported.IsZero() && existing.Has(name),
			Incomplete: state.Incomplete,
			Removed:    !existing.Has(name),
		})
	}
	for name := range existing {
		if _, reported := known[name]; !reported {
			states = append(states, State{Name: name, Hub: h.hub(name), Absent: true})
		}
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return states, nil
}

func (h *Handler) loadKnown(ctx context.Context) (map[string]search.ClusterState, error) {
	clusters, err := h.config.Engine.Clusters(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the reported clusters: %w", err)
	}
	known := make(map[string]search.ClusterState, len(clusters))
	for _, cluster := range clusters {
		known[cluster.Name] = cluster
	}
	return known, nil
}

// existing returns the names of all clusters that are allowed to report.
func (h *Handler) existing() (sets.Set[string], error) {
	names, err := h.config.Clusters()
	if err != nil {
		return nil, fmt.Errorf("%w: listing ManagedClusters: %w", search.ErrUnavailable, err)
	}
	existing := sets.New(names...)
	if h.config.HubCluster != "" {
		existing.Insert(h.config.HubCluster)
	}
	return existing, nil
}
