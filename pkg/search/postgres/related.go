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

// relations finds the resources that can be reached from matches along edges.
type relations struct {
	view    *view
	inquiry *inquiry
	request *search.Request
	// matching contains all matches, which are not related resources.
	matching sets.Set[node]
	// decisions contains the decisions of the scope, by class.
	decisions map[*class]visibility.Decision
}

// neighbor is a related resource with the matches from which it can be reached.
type neighbor struct {
	kind    string
	origins sets.Set[node]
}

// related returns the resources that are related to the matches, and the items that are related to
// the matches of the page.
func (v *view) related(ctx context.Context, i *inquiry, matches, page []node, request *search.Request) ([]search.Related, error) {
	r := &relations{view: v, inquiry: i, request: request, matching: sets.New(matches...), decisions: map[*class]visibility.Decision{}}
	origins := matches
	if request.Items {
		origins = page
	}
	var near map[node]neighbor
	var err error
	if request.RelatedItems {
		if near, err = r.neighbors(ctx, origins, true); err != nil {
			return nil, err
		}
	}
	var counts map[string]int
	switch {
	case request.RelatedItems && len(origins) == len(matches):
		counts = countsOf(near)
	case i.byName || request.RelatedDepth > 1:
		all, err := r.neighbors(ctx, matches, false)
		if err != nil {
			return nil, err
		}
		counts = countsOf(all)
	default:
		if counts, err = r.count(ctx, matches); err != nil {
			return nil, err
		}
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		related = append(related, search.Related{Kind: kind, Count: counts[kind]})
	}
	if !request.RelatedItems {
		return related, nil
	}
	return related, r.addItems(ctx, related, near)
}

func countsOf(near map[node]neighbor) map[string]int {
	counts := map[string]int{}
	for _, one := range near {
		counts[one.kind]++
	}
	return counts
}

// count counts the resources at a distance of one edge in the database, by kind, so that the neighbors of many matches
// need no memory. Classes alone must determine which resources are in the scope.
func (r *relations) count(ctx context.Context, matches []node) (map[string]int, error) {
	counts := map[string]int{}
	// If classes alone determine the matches, they also exclude matches from the counts.
	byClass := len(r.inquiry.rest.Filters)+len(r.inquiry.rest.Keywords) == 0
	err := r.view.eachNeighborClass(ctx, matches, !byClass, func(of *class, n int) {
		if match := byClass && r.inquiry.selection.has(of); !match && r.request.RelatesKind(of.shape.kind) && r.visible(of, nil) {
			counts[of.shape.kind] += n
		}
	})
	return counts, err
}

// neighbors returns the related resources of some matches. If traced is true, they have origins.
func (r *relations) neighbors(ctx context.Context, matches []node, traced bool) (map[node]neighbor, error) {
	// level contains the nodes to which paths of the same length lead, with the origins of these paths.
	level, near := map[node]sets.Set[node]{}, map[node]neighbor{}
	for _, match := range matches {
		level[match] = sets.Set[node]{}
		if traced {
			level[match].Insert(match)
		}
	}
	for range max(1, r.request.RelatedDepth) {
		next := map[node]sets.Set[node]{}
		add := func(from, to node) {
			origins, begins := level[from]
			if !begins {
				return
			}
			if next[to] == nil {
				next[to] = sets.Set[node]{}
			}
			maps.Copy(next[to], origins)
		}
		err := r.view.eachEdge(ctx, slices.Collect(maps.Keys(level)), func(source, dest node) {
			add(source, dest)
			add(dest, source)
		})
		if err != nil {
			return nil, fmt.Errorf("edges: %w", err)
		}
		level = map[node]sets.Set[node]{}
		err = r.eachVisible(ctx, slices.Collect(maps.Keys(next)), func(at node, kind string) {
			if kind != "Node" && kind != "Channel" {
				level[at] = next[at]
			}
			if one, reached := near[at]; reached {
				maps.Copy(one.origins, next[at])
			} else if !r.matching.Has(at) && r.request.RelatesKind(kind) {
				near[at] = neighbor{kind: kind, origins: next[at]}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return near, nil
}

// eachVisible executes call for each of the nodes that is a resource in the scope.
func (r *relations) eachVisible(ctx context.Context, nodes []node, call func(at node, kind string)) error {
	// Without names, an index-only scan is sufficient.
	name := "NULL::text"
	if r.inquiry.byName {
		name = "r.name"
	}
	var at node
	var id int64
	var text *string
	scans := []any{&at.cluster, &at.rid, &id, &text}
	return r.view.eachNode(ctx, nodes, rowsOf("r.cluster, r.rid, r.class, "+name), scans, r.view.ofClass(&id, func(of *class) {
		if r.visible(of, text) {
			call(at, of.shape.kind)
		}
	}))
}

// visible reports whether a resource of a class is in the scope.
func (r *relations) visible(class *class, name *string) bool {
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
		maps.Copy(origins, near[at].origins)
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
		for origin := range at.origins {
			one.RelatedTo = append(one.RelatedTo, uids[origin])
		}
		slices.Sort(one.RelatedTo)
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
