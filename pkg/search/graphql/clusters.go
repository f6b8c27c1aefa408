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

// relateClusters adds the clusters of all matches to the related resources. No such edges are
// stored, but upstream clients expect them.
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
		Query: query.Query{Filters: []query.Filter{query.NewFilter(query.Kind, query.Equal, clusterKind)}},
		Now:   request.Now, Items: true, Limit: unlimited,
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
	// Reports contain no edges of the clusters themselves, so these are not among the related resources yet.
	kind := relatedOf(result, clusterKind)
	kind.Count += len(clusters)
	matches := map[string][]string{}
	for i := range result.Items {
		matches[result.Items[i].Cluster] = append(matches[result.Items[i].Cluster], result.Items[i].UID)
	}
	for _, cluster := range clusters {
		cluster.RelatedTo = matches[cluster.Cluster]
		if full := request.RelatedLimit >= 0 && len(kind.Items) >= request.RelatedLimit; request.RelatedItems && len(cluster.RelatedTo) > 0 && !full {
			kind.Items = append(kind.Items, cluster)
		}
	}
	return nil
}

// relatedOf returns the related resources of a kind, which are added if there are none.
func relatedOf(result *search.Result, kind string) *search.Related {
	at, found := slices.BinarySearchFunc(result.Related, kind, func(r search.Related, kind string) int { return strings.Compare(r.Kind, kind) })
	if !found {
		result.Related = slices.Insert(result.Related, at, search.Related{Kind: kind})
	}
	return &result.Related[at]
}

// onlyClusters reports whether a query matches only resources of kind Cluster.
func onlyClusters(q *query.Query) bool {
	return slices.ContainsFunc(q.Filters, func(filter query.Filter) bool {
		return filter.Property == query.Kind && !slices.ContainsFunc(filter.Comparisons, func(c query.Comparison) bool {
			return c.Op != query.Equal || c.Wildcard() || !strings.EqualFold(c.Text, clusterKind)
		})
	})
}

// relateContents adds the resources of clusters to the related resources, if the clusters are the
// matches. No such edges are stored, but upstream clients expect them.
func (r *root) relateContents(ctx context.Context, scope visibility.Scope, request *search.Request, result *search.Result) error {
	if result.Count == 0 {
		return nil
	}
	clusters := result.Items
	if len(clusters) < result.Count {
		found, err := r.Engine.Search(ctx, scope, &search.Request{Query: request.Query, Now: request.Now, Items: true, Limit: unlimited})
		if err != nil {
			return fmt.Errorf("matching clusters: %w", err)
		}
		clusters = found.Items
	}
	contents := query.Query{Filters: []query.Filter{clustersOf(clusters), query.NewFilter(query.Kind, query.NotEqual, clusterKind)}}
	kinds, err := r.Engine.Complete(ctx, scope, &search.CompletionRequest{Property: query.Kind, Query: contents, Now: request.Now, Limit: unlimited})
	if err != nil {
		return fmt.Errorf("kinds in the clusters: %w", err)
	}
	returned := clustersOf(result.Items)
	for i := range kinds.Values {
		kind := kinds.Values[i].Value
		if !request.RelatesKind(kind) {
			continue
		}
		related := relatedOf(result, kind)
		related.Count += kinds.Values[i].Count
		if request.RelatedItems && len(result.Items) > 0 {
			of, err := r.Engine.Search(ctx, scope, &search.Request{
				Query: query.Query{Filters: []query.Filter{returned, query.NewFilter(query.Kind, query.Equal, kind)}},
				Now:   request.Now, Items: true, Limit: request.RelatedLimit,
			})
			if err != nil {
				return fmt.Errorf("resources of kind %s in the clusters: %w", kind, err)
			}
			for _, item := range of.Items {
				item.RelatedTo = []string{search.ClusterUIDPrefix + item.Cluster}
				related.Items = append(related.Items, item)
			}
		}
	}
	return nil
}

// clustersOf returns the filter of the clusters of items.
func clustersOf(items []search.Item) query.Filter {
	filter := query.Filter{Property: query.Cluster}
	for i := range items {
		filter.Comparisons = append(filter.Comparisons, query.NewComparison(query.Equal, items[i].Cluster))
	}
	return filter
}
