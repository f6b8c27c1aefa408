package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ordered returns the items of a page in the requested order, and the continue token for the next items.
func (p *pager) ordered(ctx context.Context) ([]*found, string, error) {
	column, err := p.column(ctx)
	if err != nil {
		return nil, "", err
	}
	if column != nil {
		return p.orderedByColumn(ctx, column)
	}
	return p.orderedHere(ctx)
}

// nextAfter returns the continue token after an item with the texts by which it is ordered.
func (p *pager) nextAfter(keys []*string, uid string) string {
	return p.view.engine.tokens.Seal(search.Place{Keys: keys, UID: uid}, p.request.OrderBy)
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
		name: nameColumn, sorted: nameColumn + " || ''", other: "r.name_key IS NOT NULL", text: unescape,
		value: func(text string) any {
			if !plainText(text) {
				return nil
			}
			return escape(text)
		},
	},
	query.Created: {
		name: createdColumn, sorted: createdColumn, other: "r.created_other",
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
	if at := p.place; at != nil && at.Keys[0] != nil && column.value(*at.Keys[0]) == nil {
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
func (p *pager) orderedByColumn(ctx context.Context, column *orderColumn) ([]*found, string, error) {
	selection, offset := p.condition.selection, max(0, p.request.Offset)
	var page []sorted
	var err error
	if p.walks(column) {
		b := p.condition.builder()
		page, err = p.sorted(ctx, b, column, inOrder, selection.indexed(b)+" AND r.name IS NOT NULL", offset)
	}
	if err == nil && (page == nil || len(page) <= p.request.Limit) {
		// Resources without the property come last.
		b := p.condition.builder()
		where := p.condition.where(b, selection.condition(b))
		if p.place != nil {
			where, offset = where+" AND "+afterColumn(b, column, p.request.OrderBy[0].Descending, p.place), 0
		}
		page, err = p.sorted(ctx, b, column, nil, where, offset)
	}
	if err != nil {
		return nil, "", err
	}
	next := ""
	if limit := p.request.Limit; limit >= 0 && len(page) > limit {
		page = page[:limit]
		last := page[limit-1]
		if last.key != nil {
			*last.key = column.text(*last.key)
		}
		next = p.nextAfter([]*string{last.key}, unescape(last.uid))
	}
	nodes := make([]node, len(page))
	for i := range page {
		nodes[i] = page[i].at
	}
	items, err := p.view.itemsOf(ctx, nodes)
	return items, next, err
}

// maxWalked bounds the entries of the index of names that are read for a page.
const maxWalked = 100_000

// walks reports whether the index of names should be read in its order, because classes alone determine the matches, and
// most entries of the index are matches. PostgreSQL would sort all matches.
func (p *pager) walks(column *orderColumn) bool {
	if column.name != nameColumn || !p.condition.exact() || p.place != nil || p.request.Limit < 0 {
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
	var one sorted
	err := p.view.rowsWithout(ctx, without, statement, b.args, []any{&one.at.cluster, &one.at.rid, &one.key, &one.uid}, func() error {
		page = append(page, one)
		return nil
	})
	return page, err
}

func direction(order search.Order) string {
	if order.Descending {
		return "DESC"
	}
	return "ASC"
}

// afterColumn returns the condition that a row comes after a position.
func afterColumn(b *builder, column *orderColumn, descending bool, at *search.Place) string {
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
	*found
	keys []*string
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
	return strings.Compare(a.UID, b.UID)
}

// spareItems is the number of items beyond twice those of a page after which the others are dropped.
const spareItems = 1000

// orderedHere reads all matches and keeps the items of the page.
func (p *pager) orderedHere(ctx context.Context) ([]*found, string, error) {
	orders := p.request.OrderBy
	most, offset := p.tally.count, max(0, p.request.Offset)
	var after *ranked
	if p.place != nil {
		offset = 0
		after = &ranked{keys: p.place.Keys, found: &found{Item: search.Item{UID: p.place.UID}}}
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
	err := p.condition.each(ctx, p.view, p.condition.selection.condition, func(item *found) error {
		one := &ranked{found: item, keys: keysOf(orders, item.Cluster, item.properties)}
		item.properties = nil
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
	items := make([]*found, len(page))
	for i := range page {
		items[i] = page[i].found
	}
	if !more {
		return items, "", nil
	}
	last := page[len(page)-1]
	return items, p.nextAfter(last.keys, last.UID), nil
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
