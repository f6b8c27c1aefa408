package postgres

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ordered returns the items of a page in the requested order.
func (p *pager) ordered(ctx context.Context) ([]search.Item, string, error) {
	if p.request.Limit == 0 && p.position != nil {
		return nil, p.request.Continue, nil
	}
	column, err := p.column(ctx)
	if err != nil {
		return nil, "", err
	}
	// Values of another type were added or removed since the previous page.
	if at := p.position; at != nil && at.UID != startUID && at.Column != (column != "") {
		if at.Column {
			at.Keys[0] = columnKey(p.request.OrderBy[0].Property, at.Keys[0])
		}
		column = ""
	}
	if column != "" {
		return p.orderedByColumn(ctx, column)
	}
	return p.orderedHere(ctx)
}

// column returns the column by which the database can order, or "" if there is none. Only names and
// creation times have such columns. These columns do not contain values of other types. Only values in the selection count:
// the caller could observe others in the time of the answer.
func (p *pager) column(ctx context.Context) (string, error) {
	if p.condition.refine || len(p.request.OrderBy) != 1 {
		return "", nil
	}
	var column, other string
	switch p.request.OrderBy[0].Property {
	case query.Name:
		column, other = "r.name", "r.name_key IS NOT NULL"
	case query.Created:
		column, other = "r.created", "r.created_other"
	default:
		return "", nil
	}
	b := p.condition.builder()
	statement := "SELECT EXISTS (SELECT FROM " + p.view.engine.table("resources") + " r WHERE " + other + " AND r.cluster = ANY(" + b.arg(p.tally.clusterIDs()) +
		") AND " + p.condition.selection.condition(b) + ")"
	var exists bool
	err := p.view.tx.QueryRow(ctx, statement, b.args...).Scan(&exists)
	if err != nil || exists {
		return "", err
	}
	return column, nil
}

// columnKey returns the order key of a value of a column, which is nil for a missing property.
func columnKey(property string, value *string) *string {
	if value == nil {
		return nil
	}
	key := orderKey(unescape(*value))
	if property == query.Created {
		// The position is valid, so this is a number.
		micros, _ := strconv.ParseInt(*value, 10, 64)
		key = timeKey(time.UnixMicro(micros))
	}
	return &key
}

// sorted is a resource with its value in the order of a column.
type sorted struct {
	at  node
	key *string
	uid string
}

// orderedByColumn determines the resources of the page, and reads only these resources.
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
		// Few resources have these names, so only the index of names should be used.
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
	return items, p.view.engine.token(next), nil
}

func direction(order search.Order) string {
	if order.Descending {
		return "DESC"
	}
	return "ASC"
}

// readSorted reads the items of a page in the order of the page.
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

// maxNames is the position up to which the index of names is scanned.
const maxNames = 50_000

// nameRange is the range of names on a page. before is the number of items with the first name before the page.
type nameRange struct {
	lower, upper string
	before       int
}

// nameBounds returns the range of names on a page according to the index of names. It returns nil
// for the last page, because resources without a name come last.
func (p *pager) nameBounds(ctx context.Context, offset int) (*nameRange, error) {
	end := int64(offset) + int64(p.request.Limit)
	if p.request.Limit < 0 || end >= maxNames {
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

// maxClasses is the number of classes up to which names are looked up by class.
const maxClasses = 5_000

// firstNames returns the first names of matches in order. It scans the index of names, or sorts the
// names of all matches. It chooses the method that is likely to read less.
func (p *pager) firstNames(ctx context.Context, order string, most int64) ([]string, error) {
	s, count := p.condition.selection, int64(p.tally.count)
	b := p.condition.builder()
	statement := "SELECT r.name FROM " + p.view.engine.table("resources") + " r WHERE r.name IS NOT NULL AND "
	if walked := most * p.view.resources / max(1, count); 2*count >= walked || len(s.named) > 0 || len(s.classes) > maxClasses {
		statement += s.indexed(b) + " ORDER BY r.name " + order + " LIMIT " + b.arg(most)
		var names []string
		err := p.view.queryWithout(ctx, inOrder, statement, b.args, func(rows pgx.Rows) (err error) {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		return names, err
	}
	// This expression prevents the use of an index for the order.
	statement += oneOf(b, s.classes) + " ORDER BY r.name || '' " + order + " LIMIT " + b.arg(most)
	rows, err := p.view.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// start returns the position before all items, for an empty page.
func (p *pager) start() string {
	return p.view.engine.token(position{Order: orderName(p.request.OrderBy), Keys: make([]*string, len(p.request.OrderBy)), UID: startUID})
}

// startUID is the UID in the position before all items. No resource has this UID.
const startUID = "\x00"

// afterColumn returns the condition that a row comes after a position.
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

// ranked is an item with its order keys, which are ordered by bytes. The key of a missing property
// is nil.
type ranked struct {
	keys []*string
	item search.Item
}

// compare compares by keys in the requested order, missing keys last, and then by UID.
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

// top is a heap of the first items, with the last one of them on top.
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

// orderedHere reads all matches and keeps the items of the page.
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
	return items, p.view.engine.token(next), nil
}

// keysOf returns the order keys of a resource.
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
