package graphql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const clusterKind = "Cluster"

// wantsClusters reports whether the requested related kinds include clusters.
func wantsClusters(kinds []string) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool { return strings.EqualFold(kind, clusterKind) })
}

// relateClusters adds the clusters of all matches to the related resources. No such edges are
// stored, but public clients expect them.
func (r *root) relateClusters(ctx context.Context, scope visibility.Scope, request *search.Request, result *search.Result) error {
	if result.Count == 0 {
		return nil
	}
	of, err := r.Engine.Complete(ctx, scope, &search.CompletionRequest{
		Property: query.Cluster, Query: request.Query, Now: request.Now, Limit: unlimited,
	})
	if err != nil {
		return fmt.Errorf("clusters of the matches: %w", err)
	}
	matching := make(map[string]bool, len(of.Values))
	for i := range of.Values {
		matching[of.Values[i].Value] = true
	}
	all, err := r.Engine.Search(ctx, scope, &search.Request{
		Query: query.Query{Filters: []query.Filter{{
			Property: query.Kind, Comparisons: []query.Comparison{query.NewComparison(query.Equal, clusterKind)},
		}}},
		Now: request.Now, Items: true, Limit: unlimited,
	})
	if err != nil {
		return fmt.Errorf("related clusters: %w", err)
	}
	var clusters []search.Item
	for _, item := range all.Items {
		if !matching[item.Cluster] || item.UID != search.ClusterUIDPrefix+item.Cluster {
			continue
		}
		properties, err := query.DecodeProperties(item.JSON())
		if err != nil {
			return fmt.Errorf("properties of %s: %w", item.UID, err)
		}
		// Matches are not related resources.
		if !request.Query.Matches(item.Cluster, properties, request.Now) {
			clusters = append(clusters, item)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	at, found := slices.BinarySearchFunc(result.Related, clusterKind, func(r search.Related, kind string) int {
		return strings.Compare(r.Kind, kind)
	})
	if !found {
		result.Related = slices.Insert(result.Related, at, search.Related{Kind: clusterKind})
	}
	return r.addClusters(ctx, scope, request, result, at, clusters)
}

// addClusters adds clusters to the related resources of their kind. It adds each cluster once.
func (r *root) addClusters(ctx context.Context, scope visibility.Scope, request *search.Request, result *search.Result, at int, clusters []search.Item) error {
	kind := &result.Related[at]
	var known []search.Item
	if kind.Count > 0 {
		again := *request
		again.Items, again.RelatedItems, again.RelatedLimit, again.RelatedKinds = false, true, unlimited, []string{clusterKind}
		others, err := r.Engine.Search(ctx, scope, &again)
		if err != nil {
			return fmt.Errorf("resources of kind Cluster: %w", err)
		}
		for i := range others.Related {
			known = append(known, others.Related[i].Items...)
		}
	}
	uids := make(map[string]bool, len(known))
	for i := range known {
		uids[known[i].UID] = true
	}
	matches := map[string][]string{}
	for i := range result.Items {
		matches[result.Items[i].Cluster] = append(matches[result.Items[i].Cluster], result.Items[i].UID)
	}
	for _, cluster := range clusters {
		if uids[cluster.UID] {
			continue
		}
		kind.Count++
		cluster.RelatedTo = matches[cluster.Cluster]
		if full := request.RelatedLimit >= 0 && len(kind.Items) >= request.RelatedLimit; request.RelatedItems && len(cluster.RelatedTo) > 0 && !full {
			kind.Items = append(kind.Items, cluster)
		}
	}
	return nil
}
