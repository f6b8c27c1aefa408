package postgres

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ordered are the items of a page in the order that the request asks for.
func (p *pager) ordered(ctx context.Context) ([]search.Item, string, error) {
	if p.request.Limit == 0 && p.position != nil {
		return nil, p.request.Continue, nil
	}
	column, err := p.column(ctx)
	if err != nil {
		return nil, "", err
	}
	if p.position != nil && p.position.UID != startUID && p.position.Column != (column != "") {
		return nil, "", fmt.Errorf("there are values of another kind since: %w", search.ErrExpired)
	}
	if column != "" {
		return p.orderedByColumn(ctx, column)
	}
	return p.orderedHere(ctx)
}

// column is what the database can order by itself; empty if it cannot. Names and times of creation
// have columns; where some have values of another kind, these are not in them.
func (p *pager) column(ctx context.Context) (string, error) {
	if p.condition.refine || len(p.request.OrderBy) != 1 {
		return "", nil
	}
	var column, other string
	switch p.request.OrderBy[0].Property {
	case query.Name:
		column, other = "r.name", "name_key IS NOT NULL"
	case query.Created:
		column, other = "r.created", "created_other"
	default:
		return "", nil
	}
	var exists bool
	err := p.view.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+p.view.engine.table("resources")+" WHERE "+other+" AND cluster = ANY($1))", p.tally.clusterIDs()).Scan(&exists)
	if err != nil || exists {
		return "", err
	}
	return column, nil
}

// sorted is a resource in the order of a column.
type sorted struct {
	at  node
	key *string
	uid string
}

// orderedByColumn finds which resources the page has, and then reads these alone.
func (p *pager) orderedByColumn(ctx context.Context, column string) ([]search.Item, string, error) {
	order := p.request.OrderBy[0]
	offset := max(0, p.request.Offset)
	var bounds *nameRange
	if column == "r.name" && p.condition.exact() && p.position == nil {
		var err error
		if bounds, err = p.nameBounds(ctx, offset); err != nil {
			return nil, "", err
		}
	}
	b := p.condition.builder()
	var where string
	switch {
	case bounds != nil:
		// The names leave so little that only their index is to be used.
		where = fmt.Sprintf("%s AND r.name >= %s AND r.name <= %s", p.condition.selection.indexed(b), b.arg(bounds.lower), b.arg(bounds.upper))
		offset -= bounds.before
	default:
		where = p.condition.where(b, p.condition.selection.condition(b))
		if p.position != nil {
			offset = 0
			where += " AND " + afterColumn(b, column, order.Descending, p.position)
		}
	}
	statement := fmt.Sprintf("SELECT r.cluster, r.rid, %[1]s::text, r.uid FROM %[2]s r WHERE %[3]s ORDER BY %[1]s %[4]s NULLS LAST, r.uid OFFSET %[5]s",
		column, p.view.engine.table("resources"), where, direction(order), b.arg(offset))
	if p.request.Limit >= 0 {
		statement += " LIMIT " + b.arg(int64(p.request.Limit)+1)
	}
	rows, err := p.view.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, "", err
	}
	var page []sorted
	var one sorted
	_, err = pgx.ForEachRow(rows, []any{&one.at.cluster, &one.at.rid, &one.key, &one.uid}, func() error {
		page = append(page, one)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	more := p.request.Limit >= 0 && len(page) > p.request.Limit
	if more {
		page = page[:p.request.Limit]
	}
	items, err := p.readSorted(ctx, page)
	switch {
	case err != nil || !more:
		return items, "", err
	case len(page) == 0:
		return nil, p.start(), nil
	}
	last := page[len(page)-1]
	next := position{Order: orderName(p.request.OrderBy), Column: true, Keys: []*string{last.key}, UID: unescape(last.uid)}
	return items, next.String(), nil
}

func direction(order search.Order) string {
	if order.Descending {
		return "DESC"
	}
	return "ASC"
}

// readSorted reads the items of a page, in its order.
func (p *pager) readSorted(ctx context.Context, page []sorted) ([]search.Item, error) {
	positions := make(map[node]int, len(page))
	nodes := make([]node, len(page))
	for i := range page {
		positions[page[i].at] = i
		nodes[i] = page[i].at
	}
	items := make([]search.Item, len(page))
	err := p.view.eachRow(ctx, nodes, itemColumns, func(rows pgx.Rows) error {
		read, err := p.view.collectItems(rows)
		for i := range read {
			items[positions[node{read[i].class.cluster.id, read[i].rid}]] = read[i].Item
		}
		return err
	})
	return items, err
}

// mostNames is up to which position the index of names is walked.
const mostNames = 50_000

// nameRange are the names of a page, and how many items come before these.
type nameRange struct {
	lower, upper string
	before       int
}

// nameBounds narrows a page in the order of names down to the names on it, which the index of names tells
// without reading resources. There are none for the last page, where names may be missing.
func (p *pager) nameBounds(ctx context.Context, offset int) (*nameRange, error) {
	end := int64(offset) + int64(p.request.Limit)
	if p.request.Limit < 0 || end >= mostNames {
		return nil, nil
	}
	order := direction(p.request.OrderBy[0])
	names, err := p.firstNames(ctx, order, end+1)
	if err != nil || int64(len(names)) <= end {
		return nil, err
	}
	first, last := names[offset], names[end]
	bounds := &nameRange{lower: first, upper: last, before: slices.Index(names, first)}
	if order == "DESC" {
		bounds.lower, bounds.upper = last, first
	}
	return bounds, nil
}

// mostClasses is up to how many classes are looked up one by one for their names.
const mostClasses = 5_000

// firstNames are so many names of matches in order. Either their index is walked past names that do not match, or the
// names of all matches are sorted, whichever are fewer.
func (p *pager) firstNames(ctx context.Context, order string, most int64) ([]string, error) {
	s, count := p.condition.selection, int64(p.tally.count)
	b := p.condition.builder()
	statement := "SELECT r.name FROM " + p.view.engine.table("resources") + " r WHERE r.name IS NOT NULL AND "
	if walked := most * p.view.resources / max(1, count); 2*count >= walked || len(s.named) > 0 || len(s.classes) > mostClasses {
		statement += s.indexed(b) + " ORDER BY r.name " + order + " LIMIT " + b.arg(most)
		var names []string
		err := p.view.queryWithout(ctx, inOrder, statement, b.args, func(rows pgx.Rows) (err error) {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		return names, err
	}
	// The order is not that of any index, so that none is walked.
	statement += oneOf(b, s.classes) + " ORDER BY r.name || '' " + order + " LIMIT " + b.arg(most)
	rows, err := p.view.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// start is a position before all items, for a page without any.
func (p *pager) start() string {
	next := position{Order: orderName(p.request.OrderBy), Keys: make([]*string, len(p.request.OrderBy)), UID: startUID}
	return next.String()
}

// startUID is in the position before all items, and no resource's.
const startUID = "\x00"

// afterColumn is the condition to come after a position.
func afterColumn(b *builder, column string, descending bool, at *position) string {
	if at.UID == startUID {
		return "true"
	}
	cast := ""
	if column == "r.created" {
		cast = "::bigint"
	}
	uid := b.arg(escape(at.UID))
	if at.Keys[0] == nil {
		return fmt.Sprintf("(%s IS NULL AND r.uid > %s)", column, uid)
	}
	operator := ">"
	if descending {
		operator = "<"
	}
	key := b.arg(*at.Keys[0]) + "::text" + cast
	return fmt.Sprintf("(%[1]s %[2]s %[3]s OR %[1]s = %[3]s AND r.uid > %[4]s OR %[1]s IS NULL)", column, operator, key, uid)
}

// ranked is an item with its keys, in the order of bytes; nil for a missing property.
type ranked struct {
	keys []*string
	item search.Item
}

// compare orders by keys as the request says, those without last, and ties by UID.
func compare(orders []search.Order, a, b *ranked) int {
	for i, order := range orders {
		x, y := a.keys[i], b.keys[i]
		switch {
		case x == nil && y == nil:
			continue
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		result := strings.Compare(*x, *y)
		if order.Descending {
			result = -result
		}
		if result != 0 {
			return result
		}
	}
	return strings.Compare(a.item.UID, b.item.UID)
}

// top keeps the first items; its first is the last of them.
type top struct {
	orders []search.Order
	items  []*ranked
}

func (t *top) Len() int           { return len(t.items) }
func (t *top) Less(i, j int) bool { return compare(t.orders, t.items[i], t.items[j]) > 0 }
func (t *top) Swap(i, j int)      { t.items[i], t.items[j] = t.items[j], t.items[i] }
func (t *top) Push(x any)         { t.items = append(t.items, x.(*ranked)) }
func (t *top) Pop() any {
	last := t.items[len(t.items)-1]
	t.items = t.items[:len(t.items)-1]
	return last
}

// orderedHere reads all matches and keeps those of the page.
func (p *pager) orderedHere(ctx context.Context) ([]search.Item, string, error) {
	orders := p.request.OrderBy
	most, offset := p.tally.count, max(0, p.request.Offset)
	var after *ranked
	if p.position != nil {
		offset = 0
		if p.position.UID != startUID {
			after = &ranked{keys: p.position.Keys, item: search.Item{UID: p.position.UID}}
		}
	}
	if p.request.Limit >= 0 && p.request.Limit < most-offset {
		most = offset + p.request.Limit
	}
	first := &top{orders: orders}
	more := false
	err := p.condition.each(ctx, p.view, p.condition.selection.condition, func(r *row) error {
		one := &ranked{keys: keysOf(orders, r.class.cluster.name, r.properties), item: search.Item{
			UID: r.uid, Cluster: r.class.cluster.name, Hub: r.class.is.Hub, Version: uint64(r.version),
		}}
		if after != nil && compare(orders, one, after) <= 0 {
			return nil
		}
		if len(first.items) >= most {
			more = true
			if most == 0 || compare(orders, one, first.items[0]) > 0 {
				return nil
			}
			heap.Pop(first)
		}
		one.item.Object = search.JSON(r.doc)
		heap.Push(first, one)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(first.items, func(a, b *ranked) int { return compare(orders, a, b) })
	page := first.items[min(offset, len(first.items)):]
	items := make([]search.Item, len(page))
	for i := range page {
		items[i] = page[i].item
	}
	switch {
	case !more:
		return items, "", nil
	case len(page) == 0:
		return items, p.start(), nil
	}
	last := page[len(page)-1]
	next := position{Order: orderName(orders), Keys: last.keys, UID: last.item.UID}
	return items, next.String(), nil
}

// keysOf are what a resource is ordered by.
func keysOf(orders []search.Order, cluster string, properties query.Properties) []*string {
	keys := make([]*string, len(orders))
	for i, order := range orders {
		if order.Property == query.Cluster {
			keys[i] = new(string)
			*keys[i] = orderKey(cluster)
			continue
		}
		p := properties.Get(order.Property)
		if p == nil || len(p.Leaves) == 0 {
			continue
		}
		key := orderKey(orderText(&p.Leaves[0]))
		keys[i] = &key
	}
	return keys
}
