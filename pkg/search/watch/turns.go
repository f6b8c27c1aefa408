package watch

import (
	"context"
	"runtime"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// longMatch is the number of compared bytes, which is the size of the properties times the number of keywords and
// values, after which a match waits for its turn. It takes about a millisecond.
const longMatch = 1 << 20

// turns contains the long matches of all watches. Their number is bounded, so that one core stays free for other work.
var turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// matches reports whether the properties of a resource match the query. It returns an error if ctx ends before its turn.
func (r *run) matches(ctx context.Context, cluster string, properties query.Properties) (bool, error) {
	if r.terms > 0 && r.terms*properties.TextBytes() >= longMatch {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return r.Query.Matches(cluster, properties, r.Now()), nil
}

// termsOf returns the number of keywords and values of a query.
func termsOf(q *query.Query) int {
	n := len(q.Keywords)
	for i := range q.Filters {
		n += len(q.Filters[i].Comparisons)
	}
	return n
}
