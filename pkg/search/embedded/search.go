package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// read starts a question. The caller must close the reader.
func (e *Engine) read(ctx context.Context, scope visibility.Scope, now time.Time) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Without this call, a caller that sends one request after the other would keep its processor,
	// while reports and other callers wait.
	runtime.Gosched()
	s, rows := e.scopes.of(scope, e.current.Load)
	r := &reader{state: s, ctx: ctx, now: now, scope: rows, scopeID: scope.ID(), since: time.Now(), keywords: e.keywords}
	var pool *search.Pool
	if e.caller != nil {
		pool = e.answers
		if r.caller = e.caller(ctx); r.caller != "" {
			r.turns = e.turns
		}
	}
	r.budget = search.BudgetOf(ctx, e.newBudget, pool, r.caller)
	if err := r.spend(questionCost); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// Search implements search.Engine.
func (e *Engine) Search(ctx context.Context, scope visibility.Scope, request *search.Request) (*search.Result, error) {
	defer observe("search", time.Now())
	r, err := e.read(ctx, scope, request.Now)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := r.matches(&request.Query)
	if err != nil {
		return nil, err
	}
	result := &search.Result{Count: int(found.GetCardinality()), Version: r.state.version}
	var rows []uint32
	if request.Items && request.Limit != 0 {
		if rows, result.Continue, err = e.page(r, found, request); err != nil {
			return nil, err
		}
		if result.Items, err = r.items(rows); err != nil {
			return nil, err
		}
	}
	if request.CountBy != "" {
		counts, err := r.values(found, request.CountBy, "", request.CountLimit)
		if err != nil {
			return nil, err
		}
		result.Counts, result.MoreCounts = counts.Values, counts.More
	}
	if request.Related {
		if result.Related, err = r.related(found, rows, request); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// GetMany implements search.Engine.
func (e *Engine) GetMany(ctx context.Context, scope visibility.Scope, uids []string) ([]search.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &reader{state: e.current.Load(), ctx: ctx, since: time.Now(), budget: e.newBudget()}
	var numbers []uint32
	for _, uid := range uids {
		if number, found := r.state.findUID(uid); found && r.state.allows(scope, number) {
			numbers = append(numbers, number)
		}
	}
	return r.items(numbers)
}

// page returns the rows of the requested items, and the continue token for the next items.
func (e *Engine) page(r *reader, found *roaring.Bitmap, request *search.Request) ([]uint32, string, error) {
	limit := request.Limit
	if limit < 0 {
		limit = r.state.rows.len()
	}
	offset := max(0, request.Offset)
	var place *search.Place
	var err error
	if request.Continue != "" {
		if place, err = e.tokens.Open(request.Continue, request.OrderBy); err != nil {
			return nil, "", err
		}
		offset = 0
	}
	if len(request.OrderBy) > 0 {
		var after *token
		if place != nil {
			after = newToken(place)
		}
		rows, more, err := r.ordered(found, request.OrderBy, after, offset, limit)
		if err != nil || !more {
			return rows, "", err
		}
		return rows, e.tokens.Seal(r.state.placeOf(rows[len(rows)-1], request.OrderBy), request.OrderBy), nil
	}
	rows := make([]uint32, 0, min(limit, int(found.GetCardinality())))
	if offset >= int(found.GetCardinality()) && offset > 0 {
		return nil, "", nil
	}
	start := uint32(0)
	switch {
	case place != nil:
		start = binary.BigEndian.Uint32(place.Row)
	case offset > 0:
		if start, err = found.Select(uint32(offset)); err != nil {
			return nil, "", fmt.Errorf("offset %d: %w", offset, err)
		}
	}
	iterator := found.Iterator()
	iterator.AdvanceIfNeeded(start)
	for len(rows) < limit && iterator.HasNext() {
		rows = append(rows, iterator.Next())
	}
	if !iterator.HasNext() {
		return rows, "", nil
	}
	return rows, e.tokens.Seal(search.Place{Row: binary.BigEndian.AppendUint32(nil, iterator.PeekNext())}, nil), nil
}

// checkEvery is the number of rows or terms between two calls of pause.
const checkEvery = 256

// items returns rows as items. Their objects are encoded when the response is written.
func (r *reader) items(rows []uint32) ([]search.Item, error) {
	if err := r.spend(len(rows) * itemCost); err != nil {
		return nil, err
	}
	if err := r.hold(len(rows) * itemBytes); err != nil {
		return nil, err
	}
	items := make([]search.Item, len(rows))
	objects := make([]object, len(rows))
	for i, number := range rows {
		if i%checkEvery == checkEvery-1 {
			if err := r.pause(); err != nil {
				return nil, err
			}
		}
		at := r.state.rows.at(number)
		c := r.state.clusterOf(at)
		items[i] = search.Item{UID: string(appendUIDText(nil, c.name, at.data)), Cluster: c.name, Hub: r.state.classes.at(at.class).class.Hub, Version: at.version}
		objects[i] = object{state: r.state, data: at.data}
		items[i].Object = &objects[i]
	}
	return items, nil
}

// firstTerm returns the first term of a property in a row, or 0 if the row has none.
func (s *state) firstTerm(data string, property uint32) uint32 {
	for number, t := range s.termsOf(data) {
		if s.fields.get(t.info().field()).property == property {
			if t.info().empty() {
				return 0
			}
			return number
		}
	}
	return 0
}

// nameOf returns the name of a row, or "" if it has none.
func (s *state) nameOf(data string) string {
	if id, known := s.propertyNames[query.Name]; known {
		if t := s.terms.at(s.firstTerm(data, id)); s.fields.get(t.info().field()).kind < query.Map {
			return t.text
		}
	}
	return ""
}

// kindOf returns the kind of a row from its term.
func (s *state) kindOf(kind uint32) string {
	if kind == 0 {
		return ""
	}
	return s.terms.at(kind).text
}
