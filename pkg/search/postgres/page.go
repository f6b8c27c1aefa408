package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// rowBytes is the length of the key of a node in a search.Place.
const rowBytes = 4 + 8

func (n node) encoded() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(n.cluster)), uint64(n.rid))
}

func decodedNode(row []byte) node {
	return node{int32(binary.BigEndian.Uint32(row)), int64(binary.BigEndian.Uint64(row[4:]))}
}

// pager reads the items of a page.
type pager struct {
	view      *view
	condition *condition
	tally     *tally
	request   *search.Request
	// place is that of the last item before the page, or nil.
	place *search.Place
}

// page returns the items of a page, and the continue token for the next items.
func (p *pager) page(ctx context.Context) ([]*found, string, error) {
	if len(p.request.OrderBy) > 0 {
		return p.ordered(ctx)
	}
	items, more, err := p.unordered(ctx)
	if err != nil || !more {
		return items, "", err
	}
	last := search.Place{Row: items[len(items)-1].node().encoded()}
	return items, p.view.engine.tokens.Seal(last, nil), nil
}

// unordered returns the items of a page without a requested order, and reports whether more items exist. Items are
// ordered by cluster and rid, so that only the clusters of the page are read.
func (p *pager) unordered(ctx context.Context) (items []*found, more bool, err error) {
	offset := max(0, p.request.Offset)
	if p.place != nil {
		offset = 0
	}
	if p.tally.listed {
		nodes := p.after(p.tally.nodes)
		nodes = nodes[min(offset, len(nodes)):]
		if more = p.request.Limit >= 0 && len(nodes) > p.request.Limit; more {
			nodes = nodes[:p.request.Limit]
		}
		items, err = p.view.itemsOf(ctx, nodes)
	} else {
		items, more, err = p.counted(ctx, offset)
	}
	slices.SortFunc(items, func(a, b *found) int { return compareNodes(a.node(), b.node()) })
	return items, more, err
}

func compareNodes(a, b node) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.rid, b.rid))
}

// after returns the nodes after the place.
func (p *pager) after(nodes []node) []node {
	if p.place == nil {
		return nodes
	}
	next, is := slices.BinarySearchFunc(nodes, decodedNode(p.place.Row), compareNodes)
	if is {
		next++
	}
	return nodes[next:]
}

// counted reads the items of a page whose clusters are known by the numbers of their matches.
func (p *pager) counted(ctx context.Context, offset int) (items []*found, more bool, err error) {
	var clusters []*clusterTally
	var last node
	if p.place != nil {
		last = decodedNode(p.place.Row)
	}
	atLeast := 0
	for _, one := range p.tally.clusters {
		switch {
		case p.place != nil && one.id < last.cluster:
			continue
		case p.place != nil && one.id == last.cluster:
			// The number of matches after the place is unknown.
		case len(clusters) == 0 && offset >= one.count:
			offset -= one.count
			continue
		default:
			atLeast += one.count
		}
		clusters = append(clusters, one)
		if p.request.Limit >= 0 && atLeast > offset+p.request.Limit {
			break
		}
	}
	if len(clusters) == 0 {
		return nil, false, nil
	}
	b := p.condition.builder()
	where := p.condition.where(b, p.in(b, clusters))
	if p.place != nil {
		where += fmt.Sprintf(" AND (r.cluster, r.rid) > (%s, %s)", b.arg(last.cluster), b.arg(last.rid))
	}
	statement := "SELECT " + itemColumns + " FROM " + table("resources") + " r WHERE " + where
	bounded := p.request.Limit >= 0
	if bounded || offset > 0 {
		// No index contains the expression. Otherwise PostgreSQL might walk an index whose entries hardly match.
		statement += " ORDER BY r.cluster + 0, r.rid OFFSET " + b.arg(offset)
	}
	if bounded {
		statement += " LIMIT " + b.arg(int64(p.request.Limit)+1)
	}
	items, err = p.view.items(ctx, statement, b.args)
	if more = bounded && len(items) > p.request.Limit; more {
		items = items[:p.request.Limit]
	}
	return items, more, err
}

// in returns the condition that a resource r is a match in one of some clusters.
func (p *pager) in(b *builder, clusters []*clusterTally) string {
	var whole, of []int32
	var classes []*class
	for _, one := range clusters {
		if one.whole {
			whole = append(whole, one.id)
		}
		if len(one.classes) > 0 {
			of, classes = append(of, one.id), append(classes, one.classes...)
		}
	}
	var parts []string
	if len(whole) > 0 {
		parts = append(parts, fmt.Sprintf("r.cluster = ANY(%s::integer[]) AND r.class > 0", b.arg(whole)))
	}
	if len(classes) > 0 {
		parts = append(parts, inClusters(b, of)+p.condition.selection.conditionOn(b, classes))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

// allNodes returns the keys of all matches.
func (p *pager) allNodes(ctx context.Context) (nodes []node, err error) {
	if p.tally.listed {
		return p.tally.nodes, nil
	}
	b := p.condition.builder()
	var at node
	statement := "SELECT r.cluster, r.rid FROM " + table("resources") + " r WHERE " + p.condition.where(b, p.condition.selection.condition(b))
	err = p.view.rows(ctx, statement, b.args, []any{&at.cluster, &at.rid}, func() error {
		nodes = append(nodes, at)
		return nil
	})
	return nodes, err
}
