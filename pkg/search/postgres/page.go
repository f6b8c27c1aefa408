package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// position is the item after which a page begins.
type position struct {
	// Order identifies the order of the position.
	Order string `json:"o,omitempty"`
	// Cluster and Resource identify an item without an order.
	Cluster  int32 `json:"c,omitempty"`
	Resource int64 `json:"r,omitempty"`
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
	if err != nil || p.Order != search.OrderName(request.OrderBy) || len(p.Keys) != len(request.OrderBy) {
		return nil, fmt.Errorf("%w: %w", errPosition, search.ErrExpired)
	}
	return &p, nil
}

// token returns the continue token of a position.
func (e *Engine) token(p position) string {
	text, err := json.Marshal(p)
	if err != nil {
		// Texts and numbers can always be encoded.
		return ""
	}
	return e.tokens.Seal(text)
}

// pager reads the items of a page.
type pager struct {
	view      *view
	condition *condition
	tally     *tally
	request   *search.Request
	position  *position
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
	last := items[len(items)-1].node()
	return items, p.view.engine.token(position{Cluster: last.cluster, Resource: last.rid}), nil
}

// unordered returns the items of a page without a requested order, and reports whether more items exist. Items are
// ordered by cluster and rid, so that only the clusters of the page are read.
func (p *pager) unordered(ctx context.Context) (items []*found, more bool, err error) {
	offset := max(0, p.request.Offset)
	if p.position != nil {
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

// after returns the nodes after the position.
func (p *pager) after(nodes []node) []node {
	if p.position == nil {
		return nodes
	}
	next, is := slices.BinarySearchFunc(nodes, node{p.position.Cluster, p.position.Resource}, compareNodes)
	if is {
		next++
	}
	return nodes[next:]
}

// counted reads the items of a page whose clusters are known by the numbers of their matches.
func (p *pager) counted(ctx context.Context, offset int) (items []*found, more bool, err error) {
	var clusters []*clusterTally
	atLeast := 0
	for _, one := range p.tally.clusters {
		switch {
		case p.position != nil && one.id < p.position.Cluster:
			continue
		case p.position != nil && one.id == p.position.Cluster:
			// The number of matches after the position is unknown.
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
	if p.position != nil {
		where += fmt.Sprintf(" AND (r.cluster, r.rid) > (%s, %s)", b.arg(p.position.Cluster), b.arg(p.position.Resource))
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
