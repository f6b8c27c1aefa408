package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// pathCost and pathBytes are those of an edge of a path, relatedBytes those of the UID of a match of a related item.
	pathCost     = 100 * time.Nanosecond
	pathBytes    = 64
	relatedBytes = 40
)

// relations finds the resources that can be reached from matches along edges.
type relations struct {
	view    *view
	inquiry *inquiry
	request *search.Request
	budget  *search.Budget
	// matching contains all matches, which are not related resources, and origins those to which items refer.
	matching, origins sets.Set[node]
	// near contains the kinds of the resources that can be reached from origins, and before the resources that precede
	// each of them on the paths.
	near   map[node]string
	before map[node][]node
	// decisions contains the decisions of the scope, by class.
	decisions map[*class]visibility.Decision
}

func (e *Engine) newBudget() *search.Budget {
	return search.NewBudget(cmp.Or(e.options.MaxCost, search.DefaultCost), search.DefaultBytes)
}

// related returns the resources that are related to the matches, and the items that are related to
// the matches of the page.
func (v *view) related(ctx context.Context, i *inquiry, matches, page []node, request *search.Request) ([]search.Related, error) {
	r := &relations{
		view: v, inquiry: i, request: request, budget: search.BudgetOf(ctx, v.engine.newBudget, nil, ""),
		matching: sets.New(matches...), before: map[node][]node{}, decisions: map[*class]visibility.Decision{},
	}
	r.origins = r.matching
	if request.Items {
		r.origins = sets.New(page...)
	}
	var err error
	if request.RelatedItems {
		if r.near, err = r.reach(ctx, r.origins, r.before); err != nil {
			return nil, err
		}
	}
	var counts map[string]int
	switch {
	case request.RelatedItems && len(r.origins) == len(r.matching):
		counts = r.countsOf(r.near)
	case i.byName || request.RelatedDepth > 1:
		all, err := r.reach(ctx, r.matching, nil)
		if err != nil {
			return nil, err
		}
		counts = r.countsOf(all)
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
	return related, r.addItems(ctx, related)
}

// relatedOf returns the related resources of the request among those that can be reached.
func (r *relations) relatedOf(reached map[node]string) []node {
	return slices.DeleteFunc(slices.Collect(maps.Keys(reached)), func(at node) bool {
		return r.matching.Has(at) || !r.request.RelatesKind(reached[at])
	})
}

func (r *relations) countsOf(reached map[node]string) map[string]int {
	counts := map[string]int{}
	for _, at := range r.relatedOf(reached) {
		counts[reached[at]]++
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

// reach returns the kinds of the resources in the scope that can be reached from some matches. If before is not nil, it
// records the resources that precede each of them.
func (r *relations) reach(ctx context.Context, from sets.Set[node], before map[node][]node) (map[node]string, error) {
	reached := map[node]string{}
	for level, depth := from, max(1, r.request.RelatedDepth); depth > 0; depth-- {
		next := sets.Set[node]{}
		err := r.view.eachEdge(ctx, level.UnsortedList(), func(from, to node) error {
			if !level.Has(from) {
				return nil
			}
			if _, known := reached[to]; !known {
				next.Insert(to)
			}
			if before == nil {
				return nil
			}
			before[to] = append(before[to], from)
			return cmp.Or(r.budget.Spend(pathCost), r.budget.Hold(pathBytes))
		})
		if err != nil {
			return nil, fmt.Errorf("edges: %w", err)
		}
		level = sets.Set[node]{}
		err = r.eachVisible(ctx, next.UnsortedList(), func(at node, kind string) {
			reached[at] = kind
			if passes(kind) && !from.Has(at) {
				level.Insert(at)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return reached, nil
}

// passes reports whether paths continue after a resource of a kind.
func passes(kind string) bool { return kind != "Node" && kind != "Channel" }

// originsOf returns the origins from which a resource can be reached, by following paths back from it.
func (r *relations) originsOf(ctx context.Context, at node) ([]node, error) {
	origins, level := sets.Set[node]{}, sets.New(at)
	for depth := max(1, r.request.RelatedDepth); depth > 0; depth-- {
		next := sets.Set[node]{}
		for to := range level {
			if err := cmp.Or(r.budget.Spend(time.Duration(1+len(r.before[to]))*pathCost), ctx.Err()); err != nil {
				return nil, err
			}
			for _, from := range r.before[to] {
				if r.origins.Has(from) {
					origins.Insert(from)
				}
				if kind, known := r.near[from]; known && passes(kind) {
					next.Insert(from)
				}
			}
		}
		level = next
	}
	return origins.UnsortedList(), r.budget.Hold(len(origins) * relatedBytes)
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
func (r *relations) addItems(ctx context.Context, related []search.Related) error {
	first, err := r.firstByUID(ctx)
	if err != nil {
		return err
	}
	origins, all := map[node][]node{}, sets.Set[node]{}
	for _, at := range first {
		if origins[at], err = r.originsOf(ctx, at); err != nil {
			return err
		}
		all.Insert(origins[at]...)
	}
	uids, err := r.uids(ctx, all.UnsortedList())
	if err != nil {
		return err
	}
	items, err := r.view.itemsOf(ctx, first)
	if err != nil {
		return err
	}
	of := map[string][]search.Item{}
	for _, one := range items {
		for _, origin := range origins[one.node()] {
			one.RelatedTo = append(one.RelatedTo, uids[origin])
		}
		slices.Sort(one.RelatedTo)
		kind := r.near[one.node()]
		of[kind] = append(of[kind], one.Item)
	}
	for i := range related {
		related[i].Items = of[related[i].Kind]
		slices.SortFunc(related[i].Items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
	}
	return nil
}

// firstByUID returns the related resources with the first UIDs of each kind, up to the limit.
func (r *relations) firstByUID(ctx context.Context) ([]node, error) {
	nodes, limit := r.relatedOf(r.near), r.request.RelatedLimit
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
		counts[r.near[at]]++
		return counts[r.near[at]] > limit
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
