package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// relations finds the resources that are one edge away from matches.
type relations struct {
	view    *view
	inquiry *inquiry
	request *search.Request
	// matching contains all matches, which are not related resources.
	matching sets.Set[node]
	// decisions contains the decisions of the scope, by class.
	decisions map[*class]visibility.Decision
}

// neighbor is a related resource with the matches to which it is related.
type neighbor struct {
	kind    string
	origins []node
}

// related returns the resources that are related to the matches, and the items that are related to
// the matches of the page.
func (v *view) related(ctx context.Context, i *inquiry, matches, page []node, request *search.Request) ([]search.Related, error) {
	r := &relations{view: v, inquiry: i, request: request, matching: sets.New(matches...), decisions: map[*class]visibility.Decision{}}
	counts, err := r.count(ctx, matches)
	if err != nil {
		return nil, err
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		related = append(related, search.Related{Kind: kind, Count: counts[kind]})
	}
	if !request.RelatedItems {
		return related, nil
	}
	origins := matches
	if request.Items {
		origins = page
	}
	near, err := r.neighbors(ctx, origins)
	if err != nil {
		return nil, err
	}
	return related, r.addItems(ctx, related, near)
}

// count counts related resources by kind. If classes alone determine which resources are in the scope, the database
// does, so that the neighbors of many matches need no memory.
func (r *relations) count(ctx context.Context, matches []node) (map[string]int, error) {
	counts := map[string]int{}
	if r.inquiry.byName {
		near, err := r.neighbors(ctx, matches)
		for _, one := range near {
			counts[one.kind]++
		}
		return counts, err
	}
	// If classes alone determine the matches, they also exclude matches from the counts.
	byClass := len(r.inquiry.rest.Filters)+len(r.inquiry.rest.Keywords) == 0
	err := r.view.eachNeighborClass(ctx, matches, !byClass, func(of *class, n int) {
		if match := byClass && r.inquiry.selection.has(of); !match && r.relates(of, nil) {
			counts[of.shape.kind] += n
		}
	})
	return counts, err
}

// neighbors returns the related resources of some matches.
func (r *relations) neighbors(ctx context.Context, matches []node) (map[node]neighbor, error) {
	from, origins := sets.New(matches...), map[node][]node{}
	add := func(match, other node) {
		if from.Has(match) && !r.matching.Has(other) {
			origins[other] = append(origins[other], match)
		}
	}
	err := r.view.eachEdge(ctx, matches, func(source, dest node) {
		add(source, dest)
		add(dest, source)
	})
	if err != nil {
		return nil, fmt.Errorf("edges: %w", err)
	}
	// Without names, an index-only scan is sufficient.
	name := "NULL::text"
	if r.inquiry.byName {
		name = "r.name"
	}
	near := map[node]neighbor{}
	var at node
	var id int64
	var text *string
	scans := []any{&at.cluster, &at.rid, &id, &text}
	err = r.view.eachNode(ctx, slices.Collect(maps.Keys(origins)), rowsOf("r.cluster, r.rid, r.class, "+name), scans, func() error {
		of, err := r.view.class(id)
		if err == nil && r.relates(of, text) {
			near[at] = neighbor{kind: of.shape.kind, origins: origins[at]}
		}
		return err
	})
	return near, err
}

// relates reports whether a resource of a class is in the scope, and of a requested kind.
func (r *relations) relates(class *class, name *string) bool {
	if !r.request.RelatesKind(class.shape.kind) {
		return false
	}
	decision, known := r.decisions[class]
	if !known {
		decision = r.inquiry.scope.Decide(class.is)
		r.decisions[class] = decision
	}
	if decision.All {
		return true
	}
	text := ""
	if name != nil {
		text = unescape(*name)
	}
	_, found := slices.BinarySearch(decision.Names, text)
	return found
}

// addItems adds the items of each kind, in the order of their UIDs.
func (r *relations) addItems(ctx context.Context, related []search.Related, near map[node]neighbor) error {
	first, err := r.firstByUID(ctx, near)
	if err != nil {
		return err
	}
	origins := sets.Set[node]{}
	for _, at := range first {
		origins.Insert(near[at].origins...)
	}
	uids, err := r.uids(ctx, origins.UnsortedList())
	if err != nil {
		return err
	}
	items, err := r.view.itemsOf(ctx, first)
	if err != nil {
		return err
	}
	of := map[string][]search.Item{}
	for _, one := range items {
		at := near[one.node()]
		for _, origin := range at.origins {
			one.RelatedTo = append(one.RelatedTo, uids[origin])
		}
		// Two resources may have several relations.
		slices.Sort(one.RelatedTo)
		one.RelatedTo = slices.Compact(one.RelatedTo)
		of[at.kind] = append(of[at.kind], one.Item)
	}
	for i := range related {
		related[i].Items = of[related[i].Kind]
		slices.SortFunc(related[i].Items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
	}
	return nil
}

// firstByUID returns the related resources with the first UIDs of each kind, up to the limit.
func (r *relations) firstByUID(ctx context.Context, near map[node]neighbor) ([]node, error) {
	nodes, limit := slices.Collect(maps.Keys(near)), r.request.RelatedLimit
	if limit < 0 {
		return nodes, nil
	}
	uids, err := r.uids(ctx, nodes)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(uids[a], uids[b]) })
	counts := map[string]int{}
	return slices.DeleteFunc(nodes, func(at node) bool {
		counts[near[at].kind]++
		return counts[near[at].kind] > limit
	}), nil
}

func (r *relations) uids(ctx context.Context, nodes []node) (map[node]string, error) {
	uids := make(map[node]string, len(nodes))
	var at node
	var uid string
	err := r.view.eachNode(ctx, nodes, rowsOf("r.cluster, r.rid, r.uid"), []any{&at.cluster, &at.rid, &uid}, func() error {
		uids[at] = unescape(uid)
		return nil
	})
	return uids, err
}
