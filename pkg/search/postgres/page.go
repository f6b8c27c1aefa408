package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// position is the item after which a page begins.
type position struct {
	// Made is true for every valid position.
	Made bool `json:"m"`
	// Order identifies the order of the position.
	Order string `json:"o,omitempty"`
	// Cluster and Resource identify an item without an order.
	Cluster  string `json:"c,omitempty"`
	Resource int64  `json:"r,omitempty"`
	// Keys and UID identify an item in an order: the texts of its properties. A missing property is null.
	Keys []*string `json:"t,omitempty"`
	UID  string    `json:"u,omitempty"`
}

// position decodes the continue token of a request. It returns nil if the request has none.
func (e *Engine) position(request *search.Request) (*position, error) {
	if request.Continue == "" {
		return nil, nil
	}
	var p position
	text, err := e.tokens.Open(request.Continue)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || !p.valid(request.OrderBy) {
		return nil, fmt.Errorf("%w: %w", errPosition, search.ErrExpired)
	}
	return &p, nil
}

// valid reports whether a position fits the order.
func (p *position) valid(orders []search.Order) bool {
	return p.Made && p.Order == orderName(orders) && len(p.Keys) == len(orders)
}

// token returns the continue token of a position.
func (e *Engine) token(p position) string {
	p.Made = true
	text, err := json.Marshal(p)
	if err != nil {
		// Texts and numbers can always be encoded.
		return ""
	}
	return e.tokens.Seal(text)
}

func orderName(orders []search.Order) string {
	var b strings.Builder
	for _, order := range orders {
		b.WriteString(strconv.Quote(order.Property))
		if order.Descending {
			b.WriteByte('-')
		}
	}
	return b.String()
}

// pager reads the items of a page.
type pager struct {
	view      *view
	condition *condition
	tally     *tally
	request   *search.Request
	position  *position
}

// nodesOf returns the keys of items of the page.
func (p *pager) nodesOf(items []search.Item) []node {
	clusters := make(map[string]int32, len(p.tally.clusters))
	for i := range p.tally.clusters {
		clusters[p.tally.clusters[i].name] = p.tally.clusters[i].id
	}
	nodes := make([]node, len(items))
	for i := range items {
		nodes[i] = node{clusters[items[i].Cluster], p.view.engine.hash.resource(items[i].Cluster, items[i].UID)}
	}
	return nodes
}

func (p *pager) page(ctx context.Context) ([]search.Item, string, error) {
	if len(p.request.OrderBy) > 0 {
		return p.ordered(ctx)
	}
	items, more, err := p.unordered(ctx)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(items, func(a, b found) int {
		return cmp.Or(compareClusters(a.class.cluster, b.class.cluster), cmp.Compare(a.rid, b.rid))
	})
	result := make([]search.Item, len(items))
	for i := range items {
		result[i] = items[i].Item
	}
	if !more {
		return result, "", nil
	}
	next := position{}
	switch {
	case len(items) > 0:
		last := &items[len(items)-1]
		next.Cluster, next.Resource = last.Cluster, last.rid
	case p.position != nil:
		next = *p.position
	default:
		// The first page is empty, so continue before all resources.
		next.Cluster, next.Resource = "", 0
	}
	return result, p.view.engine.token(next), nil
}

// segment is a part of the matches of a cluster, in the order of rids.
type segment struct {
	of         *clusterTally
	skip, take int
	after      *int64
}

// unordered returns the items of a page without a requested order, and reports whether more items
// exist. Items are ordered by cluster and rid, so that only the clusters of the page are read.
func (p *pager) unordered(ctx context.Context) ([]found, bool, error) {
	remaining := p.request.Limit
	if remaining < 0 {
		remaining = p.tally.count
	}
	skip := 0
	if p.position == nil {
		skip = max(0, p.request.Offset)
	}
	var items []found
	var full []*clusterTally
	more := false
	for i := range p.tally.clusters {
		one := &p.tally.clusters[i]
		part := segment{of: one, take: remaining}
		if p.position != nil {
			order := strings.Compare(one.name, p.position.Cluster)
			if order < 0 {
				continue
			}
			if order == 0 {
				part.after = &p.position.Resource
			}
		}
		if part.after == nil && skip >= one.count {
			skip -= one.count
			continue
		}
		if remaining == 0 && part.after == nil {
			more = true
			break
		}
		part.skip, skip = skip, 0
		if part.after == nil && part.skip == 0 && one.count <= remaining {
			full = append(full, one)
			remaining -= one.count
			continue
		}
		read, further, err := p.partial(ctx, part)
		if err != nil {
			return nil, false, err
		}
		items = append(items, read...)
		remaining -= len(read)
		if further {
			more = true
			break
		}
	}
	if len(full) > 0 {
		read, err := p.whole(ctx, full)
		if err != nil {
			return nil, false, err
		}
		items = append(items, read...)
	}
	return items, more, nil
}

// parts returns the conditions on resources r that together select the matches of some clusters.
// Matches that are listed already are returned as nodes instead.
func (p *pager) parts(clusters []*clusterTally) (listed []node, parts []func(*builder) string) {
	var whole, of []int32
	var classes, secrets []*class
	for _, one := range clusters {
		switch {
		case one.listed:
			for _, rid := range one.rids {
				listed = append(listed, node{one.id, rid})
			}
		case one.whole:
			whole, secrets = append(whole, one.id), append(secrets, one.classes...)
		default:
			classes = append(classes, one.classes...)
			of = append(of, one.id)
		}
	}
	if len(whole) > 0 {
		parts = append(parts, func(b *builder) string {
			condition := fmt.Sprintf("r.cluster = ANY(%s::integer[])", b.arg(whole))
			if len(secrets) == 0 {
				return condition + " AND r.class > 0"
			}
			return condition + fmt.Sprintf(" AND (r.class > 0 OR %s)", p.condition.selection.conditionOn(b, secrets))
		})
	}
	if len(classes) > 0 {
		parts = append(parts, func(b *builder) string {
			return inClusters(b, of) + p.condition.selection.conditionOn(b, classes)
		})
	}
	return listed, parts
}

// whole reads all matches of some clusters.
func (p *pager) whole(ctx context.Context, clusters []*clusterTally) ([]found, error) {
	listed, parts := p.parts(clusters)
	items, err := p.view.itemsOf(ctx, listed)
	for i := 0; i < len(parts) && err == nil; i++ {
		b := p.condition.builder()
		statement := "SELECT " + itemColumns + " FROM " + table("resources") + " r WHERE " + p.condition.where(b, parts[i](b))
		var some []found
		some, err = p.view.readItems(ctx, statement, b.args)
		items = append(items, some...)
	}
	return items, err
}

// itemsOf reads resources by their keys.
func (v *view) itemsOf(ctx context.Context, nodes []node) ([]found, error) {
	items := make([]found, 0, len(nodes))
	err := v.eachRow(ctx, nodes, itemColumns, func(rows pgx.Rows) error {
		read, err := v.collectItems(rows)
		items = append(items, read...)
		return err
	})
	return items, err
}

// itemsInOrder reads resources by their keys, in the order of the keys. It omits those that do not exist.
func (v *view) itemsInOrder(ctx context.Context, nodes []node) ([]found, error) {
	positions := make(map[node]int, len(nodes))
	for i, at := range nodes {
		positions[at] = i
	}
	items, err := v.itemsOf(ctx, nodes)
	slices.SortFunc(items, func(a, b found) int { return cmp.Compare(positions[a.node()], positions[b.node()]) })
	return items, err
}

// allNodes returns the keys of all matches.
func (p *pager) allNodes(ctx context.Context) ([]node, error) {
	clusters := make([]*clusterTally, len(p.tally.clusters))
	for i := range p.tally.clusters {
		clusters[i] = &p.tally.clusters[i]
	}
	nodes, parts := p.parts(clusters)
	for _, part := range parts {
		b := p.condition.builder()
		statement := "SELECT r.cluster, r.rid FROM " + table("resources") + " r WHERE " + p.condition.where(b, part(b))
		rows, err := p.view.tx.Query(ctx, statement, b.args...)
		if err != nil {
			return nil, err
		}
		var at node
		_, err = pgx.ForEachRow(rows, []any{&at.cluster, &at.rid}, func() error {
			nodes = append(nodes, at)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// partial reads a part of the matches of a cluster, and reports whether more matches exist.
func (p *pager) partial(ctx context.Context, part segment) ([]found, bool, error) {
	if part.of.listed {
		return p.listed(ctx, part)
	}
	_, parts := p.parts([]*clusterTally{part.of})
	b := p.condition.builder()
	where := p.condition.where(b, parts[0](b))
	if part.after != nil {
		where += " AND r.rid > " + b.arg(*part.after)
	}
	statement := fmt.Sprintf("SELECT %s FROM %s r WHERE %s ORDER BY r.rid OFFSET %s LIMIT %s", itemColumns, table("resources"),
		where, b.arg(part.skip), b.arg(int64(part.take)+1))
	items, err := p.view.readItems(ctx, statement, b.args)
	if err != nil || len(items) <= part.take {
		return items, false, err
	}
	return items[:part.take], true, nil
}

// listed reads matches with known keys.
func (p *pager) listed(ctx context.Context, part segment) ([]found, bool, error) {
	rids := part.of.rids
	if part.after != nil {
		next, is := slices.BinarySearch(rids, *part.after)
		if is {
			next++
		}
		rids = rids[next:]
	}
	rids = rids[min(part.skip, len(rids)):]
	more := len(rids) > part.take
	nodes := make([]node, min(part.take, len(rids)))
	for i := range nodes {
		nodes[i] = node{part.of.id, rids[i]}
	}
	items, err := p.view.itemsOf(ctx, nodes)
	return items, more, err
}
