package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func (o *oracle) Search(_ context.Context, scope visibility.Scope, request *search.Request) (*search.Result, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	matches := o.found(scope, &request.Query, request.Now)
	slices.SortFunc(matches, func(a, b oracleResource) int { return compareBy(request.OrderBy, a, b) })
	result := &search.Result{Count: len(matches), Version: o.version}
	if request.Items {
		if err := o.page(result, matches, request); err != nil {
			return nil, err
		}
	}
	if request.CountBy != "" {
		counts := completionOf(matches, &search.CompletionRequest{Property: request.CountBy, Limit: request.CountLimit})
		result.Counts, result.MoreCounts = counts.Values, counts.More
	}
	if request.Related {
		result.Related = o.related(scope, matches, uidsOf(result.Items), request)
	}
	return result, nil
}

// page sets the items and the continue token of a result. A token is valid for the version for which
// it was created.
func (o *oracle) page(result *search.Result, matches []oracleResource, request *search.Request) error {
	offset := request.Offset
	if request.Continue != "" {
		version, position, _ := strings.Cut(request.Continue, ":")
		n, err := strconv.Atoi(position)
		if err != nil || version != strconv.FormatUint(o.version, 10) {
			return fmt.Errorf("continue token %q: %w", request.Continue, search.ErrExpired)
		}
		offset = n
	}
	offset = min(offset, len(matches))
	end := len(matches)
	if request.Limit >= 0 {
		end = min(end, offset+request.Limit)
	}
	for _, r := range matches[offset:end] {
		result.Items = append(result.Items, r.item())
	}
	if end < len(matches) {
		result.Continue = fmt.Sprintf("%d:%d", o.version, end)
	}
	return nil
}

// compareBy compares resources by the orders. Resources without the property come last in both
// directions. Resources that are otherwise equal are ordered by UID.
func compareBy(orders []search.Order, a, b oracleResource) int {
	for _, order := range orders {
		_, la := a.leaves(order.Property)
		_, lb := b.leaves(order.Property)
		if len(la) == 0 || len(lb) == 0 {
			if len(la) != len(lb) && (len(la) == 0 || len(lb) == 0) {
				return cmp.Compare(min(len(lb), 1), min(len(la), 1))
			}
			continue
		}
		result := query.CompareTexts(query.OrderText(la[0]), query.OrderText(lb[0]))
		if order.Descending {
			result = -result
		}
		if result != 0 {
			return result
		}
	}
	return cmp.Compare(a.uid, b.uid)
}

// related follows edges from each match separately, so that it has the matches of each related
// resource. page are the UIDs of the returned items.
func (o *oracle) related(scope visibility.Scope, matches []oracleResource, page []string, request *search.Request) []search.Related {
	isMatch := map[string]bool{}
	for _, match := range matches {
		isMatch[match.uid] = true
	}
	relatedTo := map[string][]string{}
	for _, match := range matches {
		for uid := range o.reach(scope, match, max(1, request.RelatedDepth)) {
			if !isMatch[uid] {
				relatedTo[uid] = append(relatedTo[uid], match.uid)
			}
		}
	}
	byKind := map[string][]search.Item{}
	for r := range o.all() {
		uids, ok := relatedTo[r.uid]
		kind := search.Text(r.properties, query.Kind)
		if !ok || !wantedKind(request.RelatedKinds, kind) {
			continue
		}
		item := r.item()
		slices.Sort(uids)
		item.RelatedTo = uids
		byKind[kind] = append(byKind[kind], item)
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		items := byKind[kind]
		slices.SortFunc(items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
		one := search.Related{Kind: kind, Count: len(items)}
		if request.RelatedItems {
			if request.Items {
				items = relatedToAny(items, page)
			}
			if request.RelatedLimit >= 0 {
				items = items[:min(len(items), request.RelatedLimit)]
			}
			one.Items = items
		}
		related = append(related, one)
	}
	return related
}

func wantedKind(kinds []string, kind string) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) })
}

// reach returns the UIDs of the visible resources that are at most depth edges away.
func (o *oracle) reach(scope visibility.Scope, from oracleResource, depth int) map[string]bool {
	c := o.clusters[from.cluster]
	seen := map[string]bool{from.uid: true}
	level := []string{from.uid}
	for i := range depth {
		var next []string
		for _, uid := range level {
			if kind := search.Text(c.resources[uid].properties, query.Kind); i > 0 && (kind == "Node" || kind == "Channel") {
				continue
			}
			for key := range c.edges {
				other := key.dest
				if key.dest == uid {
					other = key.source
				} else if key.source != uid {
					continue
				}
				if r, exists := c.resources[other]; exists && !seen[other] && r.visible(scope) {
					seen[other] = true
					next = append(next, other)
				}
			}
		}
		level = next
	}
	delete(seen, from.uid)
	return seen
}

func (o *oracle) Complete(_ context.Context, scope visibility.Scope, request *search.CompletionRequest) (*search.Completion, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return completionOf(o.found(scope, &request.Query, request.Now), request), nil
}

// completionOf returns the values of a property in matching resources.
func completionOf(matches []oracleResource, request *search.CompletionRequest) *search.Completion {
	counts := map[string]int{}
	completion := &search.Completion{Numbers: true, Times: true}
	for _, r := range matches {
		t, leaves := r.leaves(request.Property)
		had := map[string]bool{}
		for _, leaf := range leaves {
			text := query.LeafText(t, leaf)
			if had[text] || !strings.HasPrefix(lower(text), lower(request.Prefix)) {
				continue
			}
			had[text] = true
			counts[text]++
			_, number := query.ParseNumber(text)
			completion.Numbers = completion.Numbers && number
			completion.Times = completion.Times && query.IsTime(text)
		}
	}
	for _, value := range slices.SortedFunc(maps.Keys(counts), compareValues) {
		completion.Values = append(completion.Values, search.ValueCount{Value: value, Count: counts[value]})
	}
	if len(completion.Values) == 0 {
		return &search.Completion{}
	}
	if completion.Numbers || completion.Times {
		completion.Min, completion.Max = completion.Values[0].Value, completion.Values[len(completion.Values)-1].Value
	}
	if request.Limit >= 0 && request.Limit < len(completion.Values) {
		completion.Values, completion.More = completion.Values[:request.Limit], true
	}
	return completion
}

// compareValues orders numbers by value and before other texts. It orders other texts by bytes.
func compareValues(a, b string) int {
	numberA, isA := query.ParseNumber(a)
	numberB, isB := query.ParseNumber(b)
	switch {
	case isA && isB:
		return cmp.Or(cmp.Compare(numberA, numberB), cmp.Compare(a, b))
	case isA:
		return -1
	case isB:
		return 1
	}
	return cmp.Compare(a, b)
}

// lower returns a text in ASCII lower case.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

func (o *oracle) Schema(_ context.Context, scope visibility.Scope, q *query.Query, now time.Time) ([]search.PropertySchema, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	schemas := map[string]*search.PropertySchema{}
	for _, r := range o.found(scope, q, now) {
		for _, p := range r.properties {
			if query.Hidden(p.Name) {
				continue
			}
			schema := schemas[p.Name]
			if schema == nil {
				schema = &search.PropertySchema{Name: p.Name, Type: p.Type, Time: true}
				schemas[p.Name] = schema
			}
			if schema.Type != p.Type {
				schema.Type = query.String
			}
			schema.Time = schema.Time && p.Type == query.String && query.IsTime(p.Leaves[0].Text)
		}
	}
	var sorted []search.PropertySchema
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		sorted = append(sorted, *schemas[name])
	}
	return sorted, nil
}

func (o *oracle) GetMany(_ context.Context, scope visibility.Scope, uids []string) (items []search.Item, err error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, uid := range uids {
		for _, c := range o.clusters {
			if r, ok := c.resources[uid]; ok && r.visible(scope) {
				items = append(items, r.item())
			}
		}
	}
	return items, nil
}
