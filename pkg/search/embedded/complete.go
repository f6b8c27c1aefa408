package embedded

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Complete implements search.Engine.
func (e *Engine) Complete(ctx context.Context, scope visibility.Scope, request *search.CompletionRequest) (*search.Completion, error) {
	defer observe("complete", time.Now())
	r, err := e.read(ctx, scope, request.Now)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := r.matches(&request.Query)
	if err != nil {
		return nil, err
	}
	return r.values(found, request.Property, request.Prefix, request.Limit)
}

// values returns the values of a property in rows that begin with a prefix.
func (r *reader) values(found *roaring.Bitmap, property, prefix string, limit int) (*search.Completion, error) {
	c := &completer{reader: r, found: selection{bitmap: found, dense: r.denseOf(found)}, prefix: prefix, limit: limit}
	if c.limit < 0 {
		c.limit = r.state.terms.len() + len(r.state.clusters)
	}
	if property == query.Cluster {
		return c.clusterNames(), nil
	}
	if c.property = r.inScope(property); c.property == nil || found.IsEmpty() {
		return &search.Completion{}, nil
	}
	// A walk through the values ends when there are enough of them. Few rows are read instead, because a walk would pass many
	// values for each of them.
	total := int(found.GetCardinality())
	reading := total * completionRowCost
	values := coarse(c.property.terms())
	if cost, few := costOfTerms(c.property, reading); few && c.walkCost(values, total) < reading {
		if err := c.take(cost, min(values, total, c.limit)); err != nil {
			return nil, err
		}
		return c.walk()
	}
	values = min(values, total)
	if err := c.take(reading+values*valueCost, values); err != nil {
		return nil, err
	}
	return c.aggregate(r.state.propertyNames[property])
}

// take takes a cost and the memory of values, which are kept until the completion is complete, from the budget.
func (c *completer) take(cost, values int) error {
	if err := c.reader.spend(cost); err != nil {
		return err
	}
	return c.reader.hold(values * valueBytes)
}

// completer finds the values of one property.
type completer struct {
	reader   *reader
	property *property
	found    selection
	prefix   string
	limit    int
}

// completionRowCost is the cost of reading a value of a row, in nanoseconds, like termCost.
const completionRowCost = 250

// walkCost estimates the cost of walking through terms until enough values are found.
func (c *completer) walkCost(terms, total int) int {
	return int(min(float64(terms), 2*float64(terms)*float64(c.limit+1)/float64(total))) * termCost
}

// hasPrefix reports whether a value begins with the prefix of the request, case-insensitively.
func (c *completer) hasPrefix(value string) bool {
	return len(value) >= len(c.prefix) && (c.prefix == "" || query.ContainsFold(value[:len(c.prefix)], c.prefix))
}

// clusterNames completes the property cluster.
func (c *completer) clusterNames() *search.Completion {
	var values []search.ValueCount
	for _, cluster := range c.reader.state.clusters {
		if n := cluster.rows.countIn(&c.found); n > 0 && c.hasPrefix(cluster.name) {
			values = append(values, search.ValueCount{Value: cluster.name, Count: n})
		}
	}
	return search.NewCompletion(values, c.limit)
}

// aggregate counts the values of the matching rows.
func (c *completer) aggregate(property uint32) (*search.Completion, error) {
	counts := map[uint32]int{}
	doubled := map[string]int{}
	var terms []uint32
	err := c.reader.each(c.found.bitmap, func(row uint32) {
		terms = terms[:0]
		for number, t := range c.reader.state.termsOf(c.reader.state.rows.at(row).data) {
			if c.reader.state.fields.get(t.info().field()).property == property {
				if !t.info().empty() {
					terms = append(terms, number)
				}
			} else if len(terms) > 0 {
				break
			}
		}
		slices.Sort(terms)
		terms = slices.Compact(terms)
		for _, number := range terms {
			counts[number]++
		}
		c.sameValues(terms, doubled)
	})
	if err != nil {
		return nil, err
	}
	byValue := map[string]int{}
	for number, n := range counts {
		if value := c.reader.state.shown(c.reader.state.terms.at(number)); c.hasPrefix(value) {
			byValue[value] += n
		}
	}
	values := make([]search.ValueCount, 0, len(byValue))
	for value, n := range byValue {
		values = append(values, search.ValueCount{Value: value, Count: n - doubled[value]})
	}
	return search.NewCompletion(values, c.limit), nil
}

// sameValues counts values that a row contains more than once as different terms, such as a number
// and a string with its digits.
func (c *completer) sameValues(terms []uint32, doubled map[string]int) {
	if len(terms) < 2 || c.property.uniform() {
		return
	}
	seen := map[string]struct{}{}
	for _, number := range terms {
		value := c.reader.state.shown(c.reader.state.terms.at(number))
		if _, known := seen[value]; known {
			doubled[value]++
		}
		seen[value] = struct{}{}
	}
}

// uniform reports whether different terms always have different values.
func (p *property) uniform() bool {
	return p.variants[query.List].empty() && p.emptyKeys == 0 && p.counts[orderNum>>4] == 0
}

// walk counts the matching rows of each term, in the order of terms, until there are enough values.
func (c *completer) walk() (*search.Completion, error) {
	completion := &search.Completion{}
	o := c.property.order
	first, some := "", false
	steps := 0
	at := position{}
	if c.prefix != "" && !hasLetters(c.prefix) && c.property.counts[orderNum>>4] == 0 {
		at = c.reader.state.seek(o, textKey(c.prefix))
	}
	for o.valid(at) {
		if steps++; steps%checkEvery == 0 && c.reader.pause() != nil {
			return nil, c.reader.ctx.Err()
		}
		value, count, next := c.valueAt(at)
		if count > 0 {
			if !some {
				first, some = value, true
			}
			if len(completion.Values) == c.limit {
				completion.More = true
				break
			}
			completion.Values = append(completion.Values, search.ValueCount{Value: value, Count: count})
		}
		at = next
	}
	if !some {
		return completion, nil
	}
	return completion, c.bounds(completion, first, at)
}

func hasLetters(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' })
}

// valueAt returns the value at a position, the number of matching rows with this value, and the
// position after all terms with this value.
func (c *completer) valueAt(at position) (value string, count int, next position) {
	o := c.property.order
	t := c.reader.state.terms.at(o.term(at))
	next = o.next(at)
	value = c.reader.state.shown(t)
	if !c.hasPrefix(value) {
		return "", 0, next
	}
	if !o.valid(next) || !c.same(t, c.reader.state.terms.at(o.term(next))) {
		return value, t.postings.countIn(&c.found), next
	}
	all := union{reader: c.reader}
	all.add(&t.postings)
	for o.valid(next) && c.same(t, c.reader.state.terms.at(o.term(next))) {
		all.add(&c.reader.state.terms.at(o.term(next)).postings)
		next = o.next(next)
	}
	return value, int(all.bitmap().AndCardinality(c.found.bitmap)), next
}

// same reports whether two different terms have the same value.
func (c *completer) same(a, b *term) bool {
	if a.info() == b.info() {
		return false
	}
	fa, fb := c.reader.state.fields.get(a.info().field()), c.reader.state.fields.get(b.info().field())
	if fa.kind != query.Map && fb.kind != query.Map {
		return a.text == b.text
	}
	return len(fa.key)+len(a.text) == len(fb.key)+len(b.text) && c.reader.state.shown(a) == c.reader.state.shown(b)
}

// bounds sets the fields that describe all values, including values after the position where the walk stopped.
func (c *completer) bounds(completion *search.Completion, first string, stopped position) error {
	_, numbers := query.ParseNumber(first)
	times := query.IsTime(first)
	if !numbers && !times {
		return nil
	}
	last := first
	switch {
	case !completion.More:
		last = completion.Values[len(completion.Values)-1].Value
		for _, value := range completion.Values {
			times = times && query.IsTime(value.Value)
		}
	case times && c.property.counts[orderText>>4] > 0:
		// Times and other texts share one order, so all following terms must be read.
		for at, steps := stopped, 1; times && c.property.order.valid(at); steps++ {
			if steps%checkEvery == 0 && c.reader.pause() != nil {
				return c.reader.ctx.Err()
			}
			value, count, next := c.valueAt(at)
			if count > 0 {
				last, times = value, query.IsTime(value)
			}
			at = next
		}
	default:
		var err error
		if last, err = c.last(first); err != nil {
			return err
		}
	}
	if numbers {
		_, numbers = query.ParseNumber(last)
	}
	if numbers || times {
		completion.Numbers, completion.Times = numbers, times
		completion.Min, completion.Max = first, last
	}
	return nil
}

// last returns the last of all values.
func (c *completer) last(first string) (string, error) {
	o := c.property.order
	for at, steps := o.previous(o.end()), 1; o.valid(at); at, steps = o.previous(at), steps+1 {
		if steps%checkEvery == 0 && c.reader.pause() != nil {
			return "", c.reader.ctx.Err()
		}
		t := c.reader.state.terms.at(o.term(at))
		if t.postings.countIn(&c.found) == 0 {
			continue
		}
		if value := c.reader.state.shown(t); c.hasPrefix(value) {
			return value, nil
		}
	}
	return first, nil
}
