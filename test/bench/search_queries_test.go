package bench_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// baseline is the p50 in ms of the public service with the same data: for a restricted user
// and for an administrator, with one client and with eight.
type baseline struct{ user1, user8, admin1, admin8 float64 }

// searchQuery is a query of the comparison. If cluster is set, the query selects a cluster that
// the user may view.
type searchQuery struct {
	number, what string
	text         string
	cluster      bool
	request      search.Request
	// complete is the property to complete; schema is true for the schema.
	complete string
	schema   bool
	baseline baseline
}

const (
	pageSize = 1000
	// largeFleet is the number of resources from which every query has a result.
	largeFleet = 100_000
)

// searchQueries are the queries with which the public service was measured.
var searchQueries = []*searchQuery{
	{number: "1", what: "kind:Pod, 1000 items", text: "kind:Pod", request: page, baseline: baseline{90, 443, 137, 349}},
	{number: "1b", what: "kind:pod, 1000 items", text: "kind:pod", request: page, baseline: baseline{213, 1306, 142, 355}},
	{number: "2", what: "Pods of payments not running", text: "kind:Pod namespace:payments status!=Running", request: page, baseline: baseline{15.5, 77, 25, 108}},
	{number: "3", what: "keyword nginx, 1000 items", text: "nginx", request: page, baseline: baseline{179, 1147, 281, 1119}},
	{number: "3b", what: "keyword nginx, count", text: "nginx", baseline: baseline{583, 1966, 2366, 25553}},
	{number: "4a", what: "complete label", complete: query.Label, baseline: baseline{266, 1551, 1323, 7696}},
	{number: "4b", what: "complete kind", complete: query.Kind, baseline: baseline{112, 464, 250, 1549}},
	{number: "4c", what: "complete name", complete: query.Name, baseline: baseline{220, 1052, 757, 3298}},
	{number: "5", what: "count of Pods", text: "kind:Pod", baseline: baseline{56, 169, 56, 188}},
	{number: "6", what: "Deployments of payments + related counts", text: "kind:Deployment namespace:payments",
		request: search.Request{Items: true, Limit: pageSize, Related: true}, baseline: baseline{74, 290, 227, 785}},
	{number: "6b", what: "1000 Pods + related items", text: "kind:Pod",
		request:  search.Request{Items: true, Limit: pageSize, Related: true, RelatedItems: true, RelatedLimit: pageSize},
		baseline: baseline{221, 816, 206, 991}},
	{number: "6c", what: "a cluster's Deployments + related counts", text: "kind:Deployment", cluster: true,
		request: search.Request{Items: true, Limit: pageSize, Related: true}, baseline: baseline{14, 61, 8, 34}},
	{number: "7", what: "label team=team-07, 1000 items", text: "label:team=team-07", request: page, baseline: baseline{169, 487, 138, 785}},
	{number: "8", what: "name:nginx-*, 1000 items", text: "name:nginx-*", request: page, baseline: baseline{152, 511, 147, 362}},
	{number: "9", what: "Pods by name, 100 after 5000", text: "kind:Pod",
		request:  search.Request{Items: true, Limit: 100, Offset: 5000, OrderBy: []search.Order{{Property: query.Name}}},
		baseline: baseline{123, 408, 353, 1400}},
	{number: "10", what: "schema", schema: true, baseline: baseline{45, 162, 35, 138}},
}

var page = search.Request{Items: true, Limit: pageSize}

func queryNamed(number string) *searchQuery {
	return searchQueries[slices.IndexFunc(searchQueries, func(q *searchQuery) bool { return q.number == number })]
}

// textFor returns the text of the query for a user.
func (q *searchQuery) textFor(u searchUser) string {
	if !q.cluster {
		return q.text
	}
	return q.text + " cluster:" + fleetgen.ClusterName(u.first)
}

// ask runs the query once. It returns an error if the result for a large fleet is empty.
func (q *searchQuery) ask(ctx context.Context, f *searchedFleet, u searchUser) error {
	parsed, err := query.Parse(q.textFor(u))
	if err != nil {
		return fmt.Errorf("query %s: %w", q.number, err)
	}
	empty := false
	switch {
	case q.schema:
		var schemas []search.PropertySchema
		schemas, err = f.engine.Schema(ctx, u.scope, &parsed, fleetgen.Epoch)
		empty = len(schemas) == 0
	case q.complete != "":
		var completion *search.Completion
		completion, err = f.engine.Complete(ctx, u.scope, &search.CompletionRequest{Property: q.complete, Query: parsed, Now: fleetgen.Epoch, Limit: pageSize})
		empty = err == nil && len(completion.Values) == 0
	default:
		request := q.request
		request.Query, request.Now = parsed, fleetgen.Epoch
		var result *search.Result
		if result, err = f.engine.Search(ctx, u.scope, &request); err == nil {
			empty = result.Count == 0
			encode(result.Items)
			for i := range result.Related {
				encode(result.Related[i].Items)
			}
		}
	}
	if err == nil && empty && f.options.Clusters*f.options.PerCluster >= largeFleet {
		err = errors.New("the result is empty, want at least one item")
	}
	if err != nil {
		return fmt.Errorf("query %s of %s: %w", q.number, u.name, err)
	}
	return nil
}

// encode encodes items as the server does, because engines leave the encoding to the server.
func encode(items []search.Item) {
	var written []byte
	for i := range items {
		written = items[i].Object.AppendJSON(written[:0])
	}
}

// repeat runs queries in turn with concurrent clients until ctx ends, and each query at least once. A
// client sends the next query when it has the result of the previous one.
func (f *searchedFleet) repeat(ctx context.Context, b *testing.B, clients int, u searchUser, queries ...*searchQuery) []time.Duration {
	return repeat(ctx, b, clients, len(queries), func(i int) error { return queries[i].ask(b.Context(), f, u) })
}

func repeat(ctx context.Context, b *testing.B, clients, kinds int, ask func(int) error) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var asking sync.WaitGroup
	for client := range clients {
		asking.Go(func() {
			var took []time.Duration
			for i := 0; i < kinds || ctx.Err() == nil; i++ {
				started := time.Now()
				if err := ask((client + i) % kinds); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(started))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	asking.Wait()
	return all
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// measureQueries prints p50 and p99 of every query for each number of clients, and the ratio of the baseline to p50.
func (f *searchedFleet) measureQueries(b *testing.B, clients ...int) {
	compareWithBaseline(b, f.users, clients, func(clients int, u searchUser, q *searchQuery) []time.Duration {
		if err := q.ask(b.Context(), f, u); err != nil {
			b.Error(err)
			return nil
		}
		ctx, cancel := context.WithTimeout(b.Context(), measured)
		defer cancel()
		return f.repeat(ctx, b, clients, u, q)
	})
}

func compareWithBaseline(b *testing.B, users []searchUser, clientCounts []int, measure func(clients int, u searchUser, q *searchQuery) []time.Duration) {
	fmt.Println("the baseline is of 100 clusters of 5000 resources; times is how many times lower p50 is")
	fmt.Printf("%-4s%-42s%-7s%3s %10s %10s %10s %8s\n", "", "ms", "user", "c", "p50", "p99", "baseline", "times")
	for _, q := range searchQueries {
		for _, u := range users {
			for _, clients := range clientCounts {
				took := measure(clients, u, q)
				if len(took) == 0 {
					continue
				}
				slices.Sort(took)
				p50, p99, before := ms(percentile(took, 50)), ms(percentile(took, 99)), q.baseline.of(u.name, clients)
				fmt.Printf("%-4s%-42s%-7s%3d %10.3f %10.3f %10.1f %8.0f\n", q.number, q.what, u.name, clients, p50, p99, before, before/p50)
				b.ReportMetric(p50, fmt.Sprintf("q%s-%s-c%d-p50-ms", q.number, u.name, clients))
			}
		}
	}
}

func (l baseline) of(user string, clients int) float64 {
	switch {
	case user == "admin" && clients == 1:
		return l.admin1
	case user == "admin":
		return l.admin8
	case clients == 1:
		return l.user1
	default:
		return l.user8
	}
}
