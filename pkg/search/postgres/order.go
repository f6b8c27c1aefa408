package postgres

import (
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
	if column != nil {
		return p.orderedByColumn(ctx, column)
	}
	return p.orderedHere(ctx)
}

// orderColumn is a column by which the database can order resources.
type orderColumn struct {
	name string
	// sorted is an expression of the same order that no index contains, so that PostgreSQL sorts instead of walking an
	// index whose entries hardly match.
	sorted string
	// other is the condition that the value of a resource is not in the column.
	other string
	// value returns the value in the column for a text, or nil if the column cannot contain it. text is its inverse.
	value func(text string) any
	text  func(column string) string
}

// orderColumns contains the columns by property. They contain neither values of other types, nor very long ones.
var orderColumns = map[string]*orderColumn{
	query.Name: {
		name: "r.name", sorted: "r.name || ''", other: "r.name_key IS NOT NULL", text: unescape,
		value: func(text string) any {
			if !plainText(text) {
				return nil
			}
			return escape(text)
		},
	},
	query.Created: {
		name: "r.created", sorted: "r.created", other: "r.created_other",
		text: func(column string) string {
			micros, _ := strconv.ParseInt(column, 10, 64) // the column contains integers
			return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
		},
		value: func(text string) any {
			at, is := query.ParseTime(text)
			if micros, exact := microseconds(at); is && exact {
				return micros
			}
			return nil
		},
	},
}

// column returns the column by which the database can order, or nil if there is none, also if values of another type were
// added since the previous page. Only values in the selection count: the caller could observe others in the time of the
// answer.
func (p *pager) column(ctx context.Context) (*orderColumn, error) {
	if p.condition.refine || len(p.request.OrderBy) != 1 {
		return nil, nil
	}
	column := orderColumns[p.request.OrderBy[0].Property]
	if column == nil {
		return nil, nil
	}
	if at := p.position; at != nil && at.UID != startUID && at.Keys[0] != nil && column.value(*at.Keys[0]) == nil {
		return nil, nil
	}
	b := p.condition.builder()
	statement := "SELECT EXISTS (SELECT FROM " + table("resources") + " r WHERE " + column.other + " AND r.cluster = ANY(" + b.arg(p.tally.clusterIDs()) +
		") AND " + p.condition.selection.condition(b) + ")"
	var exists bool
	if err := p.view.tx.QueryRow(ctx, statement, b.args...).Scan(&exists); err != nil || exists {
		return nil, err
	}
	return column, nil
}

// sorted is a resource with its value in the order of a column.
type sorted struct {
	at  node
	key *string
	uid string
}

// orderedByColumn determines the resources of the page, and reads only these resources.
func (p *pager) orderedByColumn(ctx context.Context, column *orderColumn) ([]search.Item, string, error) {
	order, selection := p.request.OrderBy[0], p.condition.selection
	b := p.condition.builder()
	var page []sorted
	var err error
	if p.walks(column) {
		page, err = p.sorted(ctx, b, column, inOrder, selection.indexed(b)+" AND r.name IS NOT NULL", max(0, p.request.Offset))
	}
	if err == nil && (page == nil || len(page) <= p.request.Limit) {
		// Resources without the property come last.
		b = p.condition.builder()
		where, offset := p.condition.where(b, selection.condition(b)), max(0, p.request.Offset)
		if p.position != nil {
			where, offset = where+" AND "+afterColumn(b, column, order.Descending, p.position), 0
		}
		page, err = p.sorted(ctx, b, column, nil, where, offset)
	}
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
	next := position{Order: orderName(p.request.OrderBy), Keys: []*string{nil}, UID: unescape(last.uid)}
	if last.key != nil {
		text := column.text(*last.key)
		next.Keys[0] = &text
	}
	return items, p.view.engine.token(next), nil
}

// maxWalked bounds the entries of the index of names that are read for a page.
const maxWalked = 100_000

// walks reports whether the index of names should be read in its order, because classes alone determine the matches, and
// most entries of the index are matches. PostgreSQL would sort all matches.
func (p *pager) walks(column *orderColumn) bool {
	if column.name != "r.name" || !p.condition.exact() || p.position != nil || p.request.Limit < 0 {
		return false
	}
	last := int64(max(0, p.request.Offset) + p.request.Limit + 1)
	return last*p.view.resources/max(1, int64(p.tally.count)) <= maxWalked
}

// sorted returns the resources of a page, and one more if there is one.
func (p *pager) sorted(ctx context.Context, b *builder, column *orderColumn, without []string, where string, offset int) ([]sorted, error) {
	by := column.name + " " + direction(p.request.OrderBy[0])
	if without == nil {
		by = column.sorted + " " + direction(p.request.OrderBy[0]) + " NULLS LAST"
	}
	statement := fmt.Sprintf("SELECT r.cluster, r.rid, %s::text, r.uid FROM %s r WHERE %s ORDER BY %s, r.uid OFFSET %s",
		column.name, table("resources"), where, by, b.arg(offset))
	if p.request.Limit >= 0 {
		statement += " LIMIT " + b.arg(int64(p.request.Limit)+1)
	}
	var page []sorted
	err := p.view.queryWithout(ctx, without, statement, b.args, func(rows pgx.Rows) error {
		var one sorted
		_, err := pgx.ForEachRow(rows, []any{&one.at.cluster, &one.at.rid, &one.key, &one.uid}, func() error {
			page = append(page, one)
			return nil
		})
		return err
	})
	return page, err
}

func direction(order search.Order) string {
	if order.Descending {
		return "DESC"
	}
	return "ASC"
}

// readSorted reads the items of a page in the order of the page.
func (p *pager) readSorted(ctx context.Context, page []sorted) ([]search.Item, error) {
	nodes := make([]node, len(page))
	for i := range page {
		nodes[i] = page[i].at
	}
	read, err := p.view.itemsInOrder(ctx, nodes)
	items := make([]search.Item, len(read))
	for i := range read {
		items[i] = read[i].Item
	}
	return items, err
}

// start returns the position before all items, for an empty page.
func (p *pager) start() string {
	return p.view.engine.token(position{Order: orderName(p.request.OrderBy), Keys: make([]*string, len(p.request.OrderBy)), UID: startUID})
}

// startUID is the UID in the position before all items. No resource has this UID.
const startUID = "\x00"

// afterColumn returns the condition that a row comes after a position.
func afterColumn(b *builder, column *orderColumn, descending bool, at *position) string {
	if at.UID == startUID {
		return "true"
	}
	uid := b.arg(escape(at.UID))
	if at.Keys[0] == nil {
		return fmt.Sprintf("(%s IS NULL AND r.uid > %s)", column.name, uid)
	}
	operator := ">"
	if descending {
		operator = "<"
	}
	key := b.arg(column.value(*at.Keys[0]))
	return fmt.Sprintf("(%[1]s %[2]s %[3]s OR %[1]s = %[3]s AND r.uid > %[4]s OR %[1]s IS NULL)", column.name, operator, key, uid)
}

// ranked is an item with the texts by which it is ordered. That of a missing property is nil.
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
		result := query.CompareTexts(*x, *y)
		if order.Descending {
			result = -result
		}
		if result != 0 {
			return result
		}
	}
	return strings.Compare(a.item.UID, b.item.UID)
}

// spareItems is the number of items beyond twice those of a page after which the others are dropped.
const spareItems = 1000

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
	var first []*ranked
	more := false
	cut := func() {
		slices.SortFunc(first, func(a, b *ranked) int { return compare(orders, a, b) })
		if len(first) > most {
			clear(first[most:])
			first, more = first[:most], true
		}
	}
	err := p.condition.each(ctx, p.view, p.condition.selection.condition, func(r *row) error {
		one := &ranked{keys: keysOf(orders, r.class.cluster.name, r.properties), item: search.Item{
			UID: r.uid, Cluster: r.class.cluster.name, Hub: r.class.is.Hub, Version: uint64(r.version), Object: search.JSON(r.doc),
		}}
		if after != nil && compare(orders, one, after) <= 0 {
			return nil
		}
		if first = append(first, one); len(first) > 2*most+spareItems {
			cut()
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	cut()
	page := first[min(offset, len(first)):]
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

// keysOf returns the texts by which a resource is ordered.
func keysOf(orders []search.Order, cluster string, properties query.Properties) []*string {
	keys := make([]*string, len(orders))
	for i, order := range orders {
		if order.Property == query.Cluster {
			keys[i] = &cluster
		} else if p := properties.Get(order.Property); p != nil && len(p.Leaves) > 0 {
			key := query.OrderText(p.Leaves[0])
			keys[i] = &key
		}
	}
	return keys
}
