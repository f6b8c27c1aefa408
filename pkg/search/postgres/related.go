package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// graph is what relations are followed in.
type graph struct {
	*walk[node]
	view    *view
	inquiry *inquiry
	// decisions are those of the scope, by class.
	decisions map[*class]visibility.Decision
}

// related finds what is related to the matches.
func (v *view) related(ctx context.Context, i *inquiry, matches []node, request *search.Request) ([]search.Related, error) {
	g := &graph{walk: newWalk(matches, request.RelatedItems), view: v, inquiry: i, decisions: map[*class]visibility.Decision{}}
	if !request.RelatedItems && request.RelatedDepth <= 1 && !i.byName {
		return g.counted(ctx, matches, request.RelatedKinds)
	}
	g.edges, g.kinds = v.eachEdge, g.visibleKinds
	if err := g.run(ctx, max(1, request.RelatedDepth)); err != nil {
		return nil, err
	}
	byKind, related := g.walk.related(request.RelatedKinds)
	if !request.RelatedItems {
		return related, nil
	}
	return related, g.items(ctx, related, byKind, request.RelatedLimit)
}

// counted has the database follow relations, where it is about numbers alone and classes decide what is in the scope.
func (g *graph) counted(ctx context.Context, matches []node, kinds []string) ([]search.Related, error) {
	// Where classes alone decide what matches, they tell what is none.
	byClass := len(g.inquiry.rest.Filters)+len(g.inquiry.rest.Keywords) == 0
	byKind := map[string]int{}
	err := g.view.eachNeighborClass(ctx, matches, !byClass, func(id int64, n int) error {
		class := g.view.class(id)
		if class == nil {
			return errUnknownClass
		}
		if byClass && g.inquiry.selection.has(class) {
			return nil
		}
		if wantedKind(kinds, class.shape.kind) && g.visible(class, nil) {
			byKind[class.shape.kind] += n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		related = append(related, search.Related{Kind: kind, Count: byKind[kind]})
	}
	return related, nil
}

// visibleKinds calls for each node that is a resource in the scope.
func (g *graph) visibleKinds(ctx context.Context, nodes []node, call func(node, string)) error {
	// Without names, the index alone answers.
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
				call(at, class.shape.kind)
			}
			return nil
		})
		return err
	})
}

// visible tells whether a resource is in the scope.
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

// items fills in the items of each kind, in the order of their UIDs.
func (g *graph) items(ctx context.Context, related []search.Related, byKind map[string][]node, limit int) error {
	var wanted []node
	for i := range related {
		wanted = append(wanted, byKind[related[i].Kind]...)
	}
	first, err := g.firstByUID(ctx, wanted, limit)
	if err != nil {
		return err
	}
	uids, err := g.originUIDs(ctx, first)
	if err != nil {
		return err
	}
	items, err := g.view.itemsOf(ctx, first)
	if err != nil {
		return err
	}
	of := map[string][]search.Item{}
	for i := range items {
		item, at := items[i].Item, node{items[i].class.cluster.id, items[i].rid}
		item.RelatedTo = g.relatedTo(at, func(origin node) string { return uids[origin] })
		kind := g.reached[at].kind
		of[kind] = append(of[kind], item)
	}
	for i := range related {
		related[i].Items = of[related[i].Kind]
		slices.SortFunc(related[i].Items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
	}
	return nil
}

// firstByUID are the nodes with the first UIDs of each kind.
func (g *graph) firstByUID(ctx context.Context, nodes []node, limit int) ([]node, error) {
	if limit < 0 {
		return nodes, nil
	}
	uids, err := g.uids(ctx, nodes)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(uids[a], uids[b]) })
	taken := map[string]int{}
	return slices.DeleteFunc(nodes, func(at node) bool {
		kind := g.reached[at].kind
		taken[kind]++
		return taken[kind] > limit
	}), nil
}

// originUIDs are the UIDs of the matches that some nodes were reached from.
func (g *graph) originUIDs(ctx context.Context, nodes []node) (map[node]string, error) {
	needed := map[node]struct{}{}
	for _, at := range nodes {
		for _, origin := range g.reached[at].origins {
			needed[g.origins[origin]] = struct{}{}
		}
	}
	return g.uids(ctx, slices.Collect(maps.Keys(needed)))
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
