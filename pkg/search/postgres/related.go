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

// neighbor is what is known of a node that was reached.
type neighbor struct {
	class *class
	// stops is true where paths do not go on.
	stops bool
	// origins are the matches that it was reached from, where they are wanted.
	origins []int32
}

// graph is walked from all matches at once, level by level.
type graph struct {
	view    *view
	inquiry *inquiry
	// origins are the matches, in the order of their positions.
	origins []node
	matches map[node]int32
	reached map[node]*neighbor
	// decisions are those of the scope, by class.
	decisions map[*class]visibility.Decision
	// traced is true if the origins of what is reached are wanted.
	traced bool
}

// related finds what is related to the matches.
func (v *view) related(ctx context.Context, i *inquiry, c *condition, matches *tally, request *search.Request) ([]search.Related, error) {
	g := &graph{
		view: v, inquiry: i, matches: make(map[node]int32, matches.count), reached: map[node]*neighbor{},
		decisions: map[*class]visibility.Decision{}, traced: request.RelatedItems,
	}
	if err := g.start(ctx, c, matches); err != nil {
		return nil, err
	}
	if err := g.walk(ctx, max(1, request.RelatedDepth)); err != nil {
		return nil, err
	}
	byKind := map[string][]node{}
	for at, one := range g.reached {
		kind := one.class.shape.kind
		if _, match := g.matches[at]; !match && wantedKind(request.RelatedKinds, kind) {
			byKind[kind] = append(byKind[kind], at)
		}
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		related = append(related, search.Related{Kind: kind, Count: len(byKind[kind])})
	}
	if !request.RelatedItems {
		return related, nil
	}
	return related, g.items(ctx, related, byKind, request.RelatedLimit)
}

func wantedKind(kinds []string, kind string) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) })
}

// start finds the matches.
func (g *graph) start(ctx context.Context, c *condition, matches *tally) error {
	add := func(at node) {
		g.matches[at] = int32(len(g.origins))
		g.origins = append(g.origins, at)
	}
	if c.refine {
		for i := range matches.clusters {
			for _, rid := range matches.clusters[i].rids {
				add(node{matches.clusters[i].id, rid})
			}
		}
		return nil
	}
	var classes []*class
	for i := range matches.clusters {
		classes = append(classes, matches.clusters[i].classes...)
	}
	b := c.builder()
	var where string
	if len(classes) <= fewClasses {
		where = inClusters(b, matches.clusterIDs()) + c.selection.conditionOn(b, classes)
	} else {
		where = c.selection.condition(b)
	}
	statement := "SELECT r.cluster, r.rid FROM " + g.view.engine.table("resources") + " r WHERE " + c.where(b, where)
	rows, err := g.view.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return err
	}
	var at node
	_, err = pgx.ForEachRow(rows, []any{&at.cluster, &at.rid}, func() error {
		add(at)
		return nil
	})
	return err
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

// walk follows edges in both directions, up to a depth from each match. What matches is passed
// through as anything else.
func (g *graph) walk(ctx context.Context, depth int) error {
	// What each node of the level was reached from; nil where it does not matter.
	level := map[node]map[int32]struct{}{}
	for i, at := range g.origins {
		level[at] = g.origin(int32(i))
	}
	// What a match has reached already; a node may be on several levels of different matches.
	seen := map[node]map[int32]struct{}{}
	for at, from := range level {
		seen[at] = maps.Clone(from)
	}
	for step := 0; step < depth && len(level) > 0; step++ {
		next := map[node]map[int32]struct{}{}
		err := g.neighbors(ctx, level, func(from, to node) {
			if g.traced {
				g.trace(level[from], to, seen, next)
				return
			}
			if _, was := seen[to]; !was {
				seen[to], next[to] = nil, nil
			}
		})
		if err != nil {
			return err
		}
		for at := range next {
			if one := g.reached[at]; one != nil && one.stops {
				delete(next, at)
			}
		}
		level = next
	}
	if g.traced {
		for at, one := range g.reached {
			own, match := g.matches[at]
			for origin := range seen[at] {
				if !match || origin != own {
					one.origins = append(one.origins, origin)
				}
			}
		}
	}
	return nil
}

func (g *graph) origin(i int32) map[int32]struct{} {
	if !g.traced {
		return nil
	}
	return map[int32]struct{}{i: {}}
}

// trace passes the origins of a node on to a neighbor, those that have not been there.
func (g *graph) trace(origins map[int32]struct{}, to node, seen, next map[node]map[int32]struct{}) {
	for origin := range origins {
		if _, was := seen[to][origin]; was {
			continue
		}
		if seen[to] == nil {
			seen[to] = map[int32]struct{}{}
		}
		seen[to][origin] = struct{}{}
		if next[to] == nil {
			next[to] = map[int32]struct{}{}
		}
		next[to][origin] = struct{}{}
	}
}

// neighbors calls for each edge between a node of the level and a visible resource.
func (g *graph) neighbors(ctx context.Context, level map[node]map[int32]struct{}, call func(from, to node)) error {
	edges, resources := g.view.engine.table("edges"), g.view.engine.table("resources")
	// Without names, the index alone answers.
	name := "NULL::text"
	if g.inquiry.byName {
		name = "r.name"
	}
	of := slices.Collect(maps.Keys(level))
	return g.view.eachCluster(ctx, of, func(from, condition func(column string) string) string {
		return "SELECT e.source, e.dest, r.cluster, r.class, " + name + " FROM " + from(edges+" e") +
			" JOIN " + resources + " r ON r.cluster = e.cluster AND r.rid = e.dest WHERE " + condition("e.cluster/e.source") +
			" UNION ALL SELECT e.dest, e.source, r.cluster, r.class, " + name + " FROM " + from(edges+" e") +
			" JOIN " + resources + " r ON r.cluster = e.cluster AND r.rid = e.source WHERE " + condition("e.cluster/e.dest")
	}, func(rows pgx.Rows) error {
		var from, to node
		var id int64
		var name *string
		_, err := pgx.ForEachRow(rows, []any{&from.rid, &to.rid, &to.cluster, &id, &name}, func() error {
			from.cluster = to.cluster
			if g.reached[to] == nil {
				class := g.view.engine.catalog.class(id)
				if class == nil {
					return errUnknownClass
				}
				if !g.visible(class, name) {
					return nil
				}
				g.reached[to] = &neighbor{class: class, stops: class.shape.kind == "Node" || class.shape.kind == "Channel"}
			}
			call(from, to)
			return nil
		})
		return err
	})
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
	items, err := g.read(ctx, first)
	if err != nil {
		return err
	}
	of := map[string][]search.Item{}
	for i := range items {
		item := &items[i].Item
		one := g.reached[node{items[i].class.cluster.id, items[i].rid}]
		for _, origin := range one.origins {
			item.RelatedTo = append(item.RelatedTo, uids[g.origins[origin]])
		}
		slices.Sort(item.RelatedTo)
		of[one.class.shape.kind] = append(of[one.class.shape.kind], *item)
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
		kind := g.reached[at].class.shape.kind
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

func (g *graph) read(ctx context.Context, nodes []node) ([]found, error) {
	var items []found
	err := g.view.eachRow(ctx, nodes, itemColumns, func(rows pgx.Rows) error {
		read, err := g.view.collectItems(rows)
		items = append(items, read...)
		return err
	})
	return items, err
}
