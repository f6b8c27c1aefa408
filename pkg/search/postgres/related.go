package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// graph follows the relations of matches along edges, level by level.
type graph struct {
	view    *view
	inquiry *inquiry
	// decisions contains the decisions of the scope, by class.
	decisions map[*class]visibility.Decision
	// matches are the matches from which the graph begins.
	matches []node
	// reached contains the nodes in the scope to which an edge leads, including matches.
	reached map[node]*neighbor
	// traced is true if the origins of reached nodes are requested.
	traced bool
}

// neighbor describes a node that was reached.
type neighbor struct {
	kind string
	// origins are the positions of the matches from which the node was reached, if the graph is
	// traced.
	origins []int32
}

// level is a set of nodes. If the graph is traced, each node has the origins from which it was
// reached.
type level map[node]sets.Set[int32]

// related returns the resources that are related to the matches, and the items that are related to
// the matches of the page.
func (v *view) related(ctx context.Context, i *inquiry, matches, page []node, request *search.Request) ([]search.Related, error) {
	begin := func(matches []node, traced bool) *graph {
		return &graph{
			view: v, inquiry: i, decisions: map[*class]visibility.Decision{},
			matches: matches, reached: map[node]*neighbor{}, traced: traced,
		}
	}
	matching := sets.New(matches...)
	origins := matches
	if request.Items {
		origins = page
	}
	var g *graph
	var byKind map[string][]node
	var err error
	if request.RelatedItems {
		g = begin(origins, true)
		if byKind, err = g.neighbors(ctx, matching, request); err != nil {
			return nil, err
		}
	}
	var counts map[string]int
	switch {
	case g != nil && len(origins) == len(matches):
		counts = countsOf(byKind)
	case request.RelatedDepth <= 1 && !i.byName:
		counts, err = begin(matches, false).count(ctx, request)
	default:
		var all map[string][]node
		all, err = begin(matches, false).neighbors(ctx, matching, request)
		counts = countsOf(all)
	}
	if err != nil {
		return nil, err
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		related = append(related, search.Related{Kind: kind, Count: counts[kind]})
	}
	if g == nil {
		return related, nil
	}
	return related, g.addItems(ctx, related, byKind, request.RelatedLimit)
}

// neighbors returns the nodes that can be reached from the matches of the graph, except all matches,
// by kind.
func (g *graph) neighbors(ctx context.Context, matching sets.Set[node], request *search.Request) (map[string][]node, error) {
	if err := g.walk(ctx, max(1, request.RelatedDepth)); err != nil {
		return nil, err
	}
	byKind := map[string][]node{}
	for at, one := range g.reached {
		if !matching.Has(at) && request.RelatesKind(one.kind) {
			byKind[one.kind] = append(byKind[one.kind], at)
		}
	}
	return byKind, nil
}

func countsOf(byKind map[string][]node) map[string]int {
	counts := make(map[string]int, len(byKind))
	for kind, nodes := range byKind {
		counts[kind] = len(nodes)
	}
	return counts
}

// count counts related resources in the database, by kind, so that the neighbors of many matches need no memory. Classes
// alone must determine which resources are in the scope.
func (g *graph) count(ctx context.Context, request *search.Request) (map[string]int, error) {
	// If classes alone determine the matches, they also exclude matches from the counts.
	byClass := len(g.inquiry.rest.Filters)+len(g.inquiry.rest.Keywords) == 0
	byKind := map[string]int{}
	err := g.view.eachNeighborClass(ctx, g.matches, !byClass, func(id int64, n int) error {
		class := g.view.class(id)
		if class == nil {
			return errUnknownClass
		}
		if byClass && g.inquiry.selection.has(class) {
			return nil
		}
		if request.RelatesKind(class.shape.kind) && g.visible(class, nil) {
			byKind[class.shape.kind] += n
		}
		return nil
	})
	return byKind, err
}

// walk follows edges in both directions, up to the given depth from each match. It also follows
// edges of matches, but not edges of Nodes and Channels.
func (g *graph) walk(ctx context.Context, depth int) error {
	current, seen := level{}, level{}
	for i, at := range g.matches {
		current[at], seen[at] = nil, nil
		if g.traced {
			current[at], seen[at] = sets.New(int32(i)), sets.New(int32(i))
		}
	}
	for step := 0; step < depth && len(current) > 0; step++ {
		next := level{}
		err := g.eachNeighbor(ctx, current, func(from, to node) {
			if g.traced {
				passOrigins(current[from], to, seen, next)
			} else if _, was := seen[to]; !was {
				seen[to], next[to] = nil, nil
			}
		})
		if err != nil {
			return err
		}
		maps.DeleteFunc(next, func(at node, _ sets.Set[int32]) bool {
			kind := g.reached[at].kind
			return kind == "Node" || kind == "Channel"
		})
		current = next
	}
	if g.traced {
		for at, one := range g.reached {
			one.origins = seen[at].UnsortedList()
		}
	}
	return nil
}

// passOrigins adds the origins of a node to its neighbor, except origins that have reached the
// neighbor already.
func passOrigins(origins sets.Set[int32], to node, seen, next level) {
	for origin := range origins {
		if seen[to].Has(origin) {
			continue
		}
		for _, l := range []level{seen, next} {
			if l[to] == nil {
				l[to] = sets.Set[int32]{}
			}
			l[to].Insert(origin)
		}
	}
}

// eachNeighbor executes call for each edge between a node of the level and a resource in the scope.
func (g *graph) eachNeighbor(ctx context.Context, current level, call func(from, to node)) error {
	type pair struct{ from, to node }
	var pairs []pair
	unknown := sets.Set[node]{}
	add := func(from, to node) {
		if _, is := current[from]; !is {
			return
		}
		pairs = append(pairs, pair{from, to})
		if g.reached[to] == nil {
			unknown.Insert(to)
		}
	}
	err := g.view.eachEdge(ctx, slices.Collect(maps.Keys(current)), func(source, dest node) {
		add(source, dest)
		add(dest, source)
	})
	if err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	if err := g.reach(ctx, unknown.UnsortedList()); err != nil {
		return err
	}
	for _, one := range pairs {
		if g.reached[one.to] != nil {
			call(one.from, one.to)
		}
	}
	return nil
}

// reach adds the nodes to reached that are resources in the scope.
func (g *graph) reach(ctx context.Context, nodes []node) error {
	// Without names, an index-only scan is sufficient.
	name := "NULL::text"
	if g.inquiry.byName {
		name = "r.name"
	}
	return g.view.eachRow(ctx, nodes, "r.cluster, r.rid, r.class, "+name, func(rows pgx.Rows) error {
		var at node
		var id int64
		var name *string
		_, err := pgx.ForEachRow(rows, []any{&at.cluster, &at.rid, &id, &name}, func() error {
			class := g.view.class(id)
			if class == nil {
				return errUnknownClass
			}
			if g.visible(class, name) {
				g.reached[at] = &neighbor{kind: class.shape.kind}
			}
			return nil
		})
		return err
	})
}

// visible reports whether a resource of a class is in the scope.
func (g *graph) visible(class *class, name *string) bool {
	decision, known := g.decisions[class]
	if !known {
		decision = g.inquiry.scope.Decide(class.is)
		g.decisions[class] = decision
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
func (g *graph) addItems(ctx context.Context, related []search.Related, byKind map[string][]node, limit int) error {
	var wanted []node
	for i := range related {
		wanted = append(wanted, byKind[related[i].Kind]...)
	}
	first, err := g.firstByUID(ctx, wanted, limit)
	if err != nil {
		return err
	}
	origins := sets.Set[node]{}
	for _, at := range first {
		for _, origin := range g.reached[at].origins {
			origins.Insert(g.matches[origin])
		}
	}
	uids, err := g.uids(ctx, origins.UnsortedList())
	if err != nil {
		return err
	}
	items, err := g.view.itemsOf(ctx, first)
	if err != nil {
		return err
	}
	of := map[string][]search.Item{}
	for i := range items {
		item, reached := items[i].Item, g.reached[items[i].node()]
		for _, origin := range reached.origins {
			item.RelatedTo = append(item.RelatedTo, uids[g.matches[origin]])
		}
		slices.Sort(item.RelatedTo)
		of[reached.kind] = append(of[reached.kind], item)
	}
	for i := range related {
		related[i].Items = of[related[i].Kind]
		slices.SortFunc(related[i].Items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
	}
	return nil
}

// firstByUID returns the nodes with the first UIDs of each kind. It returns at most limit nodes of
// a kind, or all if the limit is negative.
func (g *graph) firstByUID(ctx context.Context, nodes []node, limit int) ([]node, error) {
	if limit < 0 {
		return nodes, nil
	}
	uids, err := g.uids(ctx, nodes)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(uids[a], uids[b]) })
	counts := map[string]int{}
	return slices.DeleteFunc(nodes, func(at node) bool {
		kind := g.reached[at].kind
		counts[kind]++
		return counts[kind] > limit
	}), nil
}

func (g *graph) uids(ctx context.Context, nodes []node) (map[node]string, error) {
	uids := make(map[node]string, len(nodes))
	err := g.view.eachRow(ctx, nodes, "r.cluster, r.rid, r.uid", func(rows pgx.Rows) error {
		var at node
		var uid string
		_, err := pgx.ForEachRow(rows, []any{&at.cluster, &at.rid, &uid}, func() error {
			uids[at] = unescape(uid)
			return nil
		})
		return err
	})
	return uids, err
}
