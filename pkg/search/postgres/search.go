package postgres

import (
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// inquiry is a read after the decision about classes.
type inquiry struct {
	scope     visibility.Scope
	now       time.Time
	selection *selection
	rest      query.Query
	clusters  int
	// numbers contains the counts of the selected classes in the snapshot, if classes alone determine the matches, or if
	// there are few classes.
	numbers []int
	// byName is true if the scope contains some resources only by name.
	byName  bool
	version uint64
}

// inquire decides about classes, and calls use with the result.
func (d *database) inquire(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time, use func(*view, *inquiry) error) error {
	classes, rest := split(q)
	i := &inquiry{scope: scope, now: now, rest: rest}
	return d.read(ctx, func(v *view) error {
		i.clusters = len(d.catalog.clusters)
		i.selection = d.selection(scope, &classes, now)
		if len(i.rest.Filters)+len(i.rest.Keywords) == 0 || len(i.selection.classes) <= fewClasses {
			i.numbers = i.selection.numbers()
		}
		i.byName = len(d.selection(scope, &query.Query{}, now).named) > 0
		i.version = uint64(v.version)
		return nil
	}, func(v *view) error { return use(v, i) })
}

func (i *inquiry) compile(ctx context.Context, v *view) (*condition, error) {
	return v.compile(ctx, i.selection, i.rest, i.clusters, i.now)
}

// Search implements search.Engine.
func (e *Engine) Search(ctx context.Context, scope visibility.Scope, request *search.Request) (_ *search.Result, err error) {
	defer observe("search", time.Now(), &err)
	var place *search.Place
	if request.Continue != "" {
		if place, err = e.tokens.Open(request.Continue, request.OrderBy); err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
	}
	result, err := answer(ctx, e, func(ctx context.Context, d *database) (*search.Result, error) {
		return d.search(ctx, scope, request, place)
	})
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	return result, nil
}

func (d *database) search(ctx context.Context, scope visibility.Scope, request *search.Request, place *search.Place) (*search.Result, error) {
	result := &search.Result{}
	err := d.inquire(ctx, scope, &request.Query, request.Now, func(v *view, i *inquiry) error {
		result.Version = i.version
		c, err := i.compile(ctx, v)
		if err != nil {
			return err
		}
		var counts *tally
		// The tally also finds the values of classes.
		var by, byClass *values
		if request.CountBy != "" {
			if by = newValues(request.CountBy, ""); by.ofClasses() {
				byClass = by
			}
		}
		if counts, err = c.tally(ctx, v, i.numbers, request.Items || request.Related, byClass); err != nil {
			return err
		}
		result.Count = counts.count
		if counts.count == 0 {
			return nil
		}
		if by != nil {
			if byClass == nil {
				if err := c.completeResources(ctx, v, by, request.CountLimit); err != nil {
					return fmt.Errorf("values of property %s: %w", by.property, err)
				}
			}
			counted := by.completion(request.CountLimit)
			result.Counts, result.MoreCounts = counted.Values, counted.More
		}
		p := pager{view: v, condition: c, tally: counts, request: request, place: place}
		var page []node
		if request.Items && request.Limit != 0 {
			items, next, err := p.page(ctx)
			if err != nil {
				return fmt.Errorf("items: %w", err)
			}
			result.Continue = next
			for _, one := range items {
				result.Items, page = append(result.Items, one.Item), append(page, one.node())
			}
		}
		if request.Related {
			matches := page
			if len(matches) != counts.count {
				if matches, err = p.allNodes(ctx); err != nil {
					return fmt.Errorf("matches: %w", err)
				}
			}
			if result.Related, err = v.related(ctx, i, matches, page, request); err != nil {
				return fmt.Errorf("related resources: %w", err)
			}
		}
		return nil
	})
	return result, err
}

// GetMany implements search.Engine.
func (e *Engine) GetMany(ctx context.Context, scope visibility.Scope, uids []string) (_ []search.Item, err error) {
	defer observe("get", time.Now(), &err)
	var nodes []node
	var items []search.Item
	err = e.primary.read(ctx, func(*view) error {
		for _, uid := range uids {
			for _, name := range search.ClustersOf(uid) {
				if of := e.primary.catalog.named[name]; of != nil {
					nodes = append(nodes, node{of.id, e.hash.resource(name, uid)})
				}
			}
		}
		return nil
	}, func(v *view) (err error) {
		items, err = v.get(ctx, scope, nodes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return items, nil
}

// get returns the given resources that are in the scope, in their order.
func (v *view) get(ctx context.Context, scope visibility.Scope, nodes []node) ([]search.Item, error) {
	read, err := v.itemsOf(ctx, nodes)
	if err != nil {
		return nil, err
	}
	var items []search.Item
	for _, one := range read {
		properties, err := query.DecodeProperties(one.JSON())
		if err != nil {
			return nil, err
		}
		if scope.Allows(visibility.Object{Class: one.class.is, Name: search.Text(properties, query.Name)}) {
			items = append(items, one.Item)
		}
	}
	return items, nil
}
