package postgres

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Search implements search.Engine.
func (p *Public) Search(ctx context.Context, scope visibility.Scope, request *search.Request) (_ *search.Result, err error) {
	defer observe("search", time.Now(), &err)
	at, err := parsePosition(request)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	result := &search.Result{}
	err = p.read(ctx, scope, func(r *publicRead) error {
		if result.Version, err = publicVersion(ctx, r.tx); err != nil {
			return err
		}
		page := newPublicPage(request, at)
		var uids []string
		err := r.matches(ctx, &request.Query, request.Now, func(one *publicRow) error {
			result.Count++
			if request.Items {
				page.add(one)
			}
			if request.Related {
				uids = append(uids, one.UID)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if request.Items {
			result.Items, result.Continue = page.items()
		}
		if request.Related {
			if result.Related, err = r.related(ctx, uids, request); err != nil {
				return fmt.Errorf("related resources: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	return result, nil
}

// publicPage keeps the items of a page while all matches go by.
type publicPage struct {
	request *search.Request
	first   *top
	after   *ranked
	offset  int
	more    bool
}

func newPublicPage(request *search.Request, at *position) *publicPage {
	p := &publicPage{request: request, first: &top{orders: request.OrderBy}, offset: max(0, request.Offset)}
	if at != nil {
		p.offset = 0
		if at.UID != startUID {
			p.after = &ranked{keys: at.Keys, item: search.Item{UID: at.UID}}
		}
	}
	return p
}

func (p *publicPage) add(r *publicRow) {
	orders := p.request.OrderBy
	one := &ranked{keys: keysOf(orders, r.Cluster, r.properties), item: r.Item}
	if p.after != nil && compare(orders, one, p.after) <= 0 {
		return
	}
	if p.request.Limit >= 0 && len(p.first.items)-p.request.Limit >= p.offset {
		p.more = true
		if len(p.first.items) == 0 || compare(orders, one, p.first.items[0]) > 0 {
			return
		}
		heap.Pop(p.first)
	}
	one.item.Object = r.properties
	heap.Push(p.first, one)
}

func (p *publicPage) items() ([]search.Item, string) {
	orders := p.request.OrderBy
	slices.SortFunc(p.first.items, func(a, b *ranked) int { return compare(orders, a, b) })
	page := p.first.items[min(p.offset, len(p.first.items)):]
	items := make([]search.Item, len(page))
	for i := range page {
		items[i] = page[i].item
	}
	next := position{Order: orderName(orders), Keys: make([]*string, len(orders)), UID: startUID}
	switch {
	case !p.more:
		return items, ""
	case len(page) > 0:
		next.Keys, next.UID = page[len(page)-1].keys, page[len(page)-1].item.UID
	case p.after != nil:
		next.Keys, next.UID = p.after.keys, p.after.item.UID
	}
	return items, next.String()
}

// related finds what is related to matches.
func (r *publicRead) related(ctx context.Context, matches []string, request *search.Request) ([]search.Related, error) {
	w := newWalk(matches, request.RelatedItems)
	items := map[string]search.Item{}
	w.edges = r.eachEdge
	w.kinds = func(ctx context.Context, uids []string, call func(string, string)) error {
		return r.each(ctx, "uid = ANY($1)", []any{uids}, func(one *publicRow) error {
			if request.RelatedItems {
				one.Object = one.properties
				items[one.UID] = one.Item
			}
			call(one.UID, search.Text(one.properties, query.Kind))
			return nil
		})
	}
	if err := w.run(ctx, max(1, request.RelatedDepth)); err != nil {
		return nil, err
	}
	byKind, related := w.related(request.RelatedKinds)
	for i := range related {
		uids := byKind[related[i].Kind]
		slices.Sort(uids)
		if request.RelatedLimit >= 0 {
			uids = uids[:min(len(uids), request.RelatedLimit)]
		}
		for _, uid := range uids {
			if item, wanted := items[uid]; wanted {
				item.RelatedTo = w.relatedTo(uid, func(origin string) string { return origin })
				related[i].Items = append(related[i].Items, item)
			}
		}
	}
	return related, nil
}

// eachEdge calls for each edge within a cluster from or to resources.
func (r *publicRead) eachEdge(ctx context.Context, uids []string, call func(source, dest string)) error {
	rows, err := r.tx.Query(ctx, "SELECT sourceid, destid FROM "+r.table("edges")+" WHERE (sourceid = ANY($1) OR destid = ANY($1))"+
		" AND split_part(sourceid, '/', 1) = split_part(destid, '/', 1)", uids)
	if err != nil {
		return err
	}
	var source, dest string
	_, err = pgx.ForEachRow(rows, []any{&source, &dest}, func() error {
		call(source, dest)
		return nil
	})
	return err
}

// Complete implements search.Engine.
func (p *Public) Complete(ctx context.Context, scope visibility.Scope, request *search.CompletionRequest) (_ *search.Completion, err error) {
	defer observe("complete", time.Now(), &err)
	gathered := newValues(request.Property, request.Prefix)
	err = p.read(ctx, scope, func(r *publicRead) error {
		return r.matches(ctx, &request.Query, request.Now, func(one *publicRow) error {
			if request.Property == query.Cluster {
				gathered.add(one.Cluster, 1)
			} else {
				gathered.addResource(one.properties)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("values of property %s: %w", request.Property, err)
	}
	return gathered.completion(request.Limit), nil
}

// Schema implements search.Engine.
func (p *Public) Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) (_ []search.PropertySchema, err error) {
	defer observe("schema", time.Now(), &err)
	found := schemas{}
	err = p.read(ctx, scope, func(r *publicRead) error {
		return r.matches(ctx, q, now, func(one *publicRow) error {
			found.addResource(one.properties)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return found.sorted(), nil
}

// Get implements search.Engine.
func (p *Public) Get(ctx context.Context, scope visibility.Scope, uid string) (_ *search.Item, err error) {
	defer observe("get", time.Now(), &err)
	if strings.IndexByte(uid, 0) >= 0 {
		return nil, nil
	}
	var item *search.Item
	err = p.read(ctx, scope, func(r *publicRead) error {
		return r.each(ctx, "uid = $1", []any{strings.ToValidUTF8(uid, "\uFFFD")}, func(one *publicRow) error {
			found := one.Item
			found.Object = one.properties
			item = &found
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return item, nil
}
