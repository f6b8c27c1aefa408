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

// State is what is known about the reports of a cluster.
type State struct {
	Name string
	// Hub is true for the hub itself.
	Hub bool
	// Resources and Edges are how many are stored.
	Resources, Edges int
	// Secrets are those of the Resources that are Secrets of a managed cluster.
	Secrets int
	// LastReport is zero if there was none, or if the engine does not know.
	LastReport time.Time
	// Silent is true if the last report is too long ago. It is false where nobody knows when
	// that was.
	Silent bool
	// Absent is true if the cluster exists and has never reported.
	Absent bool
	// Incomplete is true if a full report is needed, and awaited.
	Incomplete bool
	// Removed is true if the cluster does not exist any more; its resources are
	// about to be forgotten.
	Removed bool
}

// States are those of all clusters that exist or have reported, by name. They are up to a
// second old. Callers share them and must not change them. It returns an error if the
// engine or the list of clusters is not available.
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
		states = append(states, State{
			Name: name, Hub: state.Hub, Resources: state.Resources, Edges: state.Edges, Secrets: state.Secrets,
			LastReport: state.Reported,
			Silent:     !state.Reported.IsZero() && now.Sub(state.Reported) > h.config.SilentAfter,
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
		return nil, fmt.Errorf("reading what clusters have reported: %w", err)
	}
	known := make(map[string]search.ClusterState, len(clusters))
	for _, cluster := range clusters {
		known[cluster.Name] = cluster
	}
	return known, nil
}

// existing are the names of all clusters that may report.
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
