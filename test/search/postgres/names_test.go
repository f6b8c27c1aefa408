package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// TestNamesAreCompletedInOrder checks the order, the counts and the limit of completions of the property name.
func TestNamesAreCompletedInOrder(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	names := []query.Property{
		text("name", "b"), text("name", "a"), text("name", "a"), text("name", "10"), text("name", "9"), text("name", "2025-11-01T00:00:00Z"),
		text("name", "-x"), text("name", "Zeta"), text("name", "ünï"), text("name", "zero\x00"),
		{Name: "name", Type: query.Bool, Leaves: []query.Leaf{{Type: query.Bool, Text: "true"}}},
		{Name: "name", Type: query.Number, Leaves: []query.Leaf{{Type: query.Number, Text: "9"}}},
		{Name: "name", Type: query.List, Leaves: []query.Leaf{{Type: query.String, Text: "a"}, {Type: query.String, Text: "listed"}}},
	}
	report := &search.Report{Cluster: "c1", Full: true, Time: time.Now()}
	for i, name := range names {
		report.Put = append(report.Put, resource("c1", fmt.Sprint(i), text("kind", "Thing"), name))
	}
	mustApply(t, engine, report)
	all := []search.ValueCount{
		{Value: "9", Count: 2}, {Value: "10", Count: 1}, {Value: "-x", Count: 1}, {Value: "2025-11-01T00:00:00Z", Count: 1}, {Value: "Zeta", Count: 1},
		{Value: "a", Count: 3}, {Value: "b", Count: 1}, {Value: "listed", Count: 1}, {Value: "true", Count: 1}, {Value: "zero\x00", Count: 1}, {Value: "ünï", Count: 1},
	}
	for limit := -1; limit <= len(all)+1; limit++ {
		want := all
		if limit >= 0 {
			want = all[:min(limit, len(all))]
		}
		for _, q := range []query.Query{{}, equals("kind", "Thing"), {Keywords: []string{"thing"}}} {
			completion, err := engine.Complete(within(t), visibility.Everything(), &search.CompletionRequest{Property: "name", Query: q, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			if difference := gocmp.Diff(want, slices.Clip(append([]search.ValueCount{}, completion.Values...))); difference != "" {
				t.Errorf("completion with limit %d of %s (-want +got):\n%s", limit, fmt.Sprint(q), difference)
			}
			if more := limit >= 0 && limit < len(all); completion.More != more {
				t.Errorf("completion with limit %d of %s: more = %v, want %v", limit, fmt.Sprint(q), completion.More, more)
			}
		}
	}
	completion, err := engine.Complete(within(t), visibility.Everything(), &search.CompletionRequest{Property: "name", Prefix: "Z", Limit: 1})
	if err != nil || !completion.More || len(completion.Values) != 1 || completion.Values[0].Value != "Zeta" {
		t.Errorf("completion with prefix Z and limit 1 = %+v, %v, want Zeta and more", completion, err)
	}
}

// TestManyClusters reads pages, names and related resources of more clusters than a statement lists individually.
func TestManyClusters(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	fleet := fleetgen.Options{Clusters: 14, PerCluster: 150}
	var reports []*search.Report
	for i := range fleet.Clusters {
		reports = append(reports, fleetgen.Cluster(fleet, i))
		mustApply(t, engine, reports[i])
	}
	scopes := map[string]visibility.Scope{
		"everything": visibility.Everything(),
		"some":       visibilitytest.Scope(t, fleetgen.Policy(1, 10, 5), &user.DefaultInfo{Name: fleetgen.User}),
	}
	for name, scope := range scopes {
		for _, text := range []string{"kind:Pod", "kind:Deployment", "kind:Pod status!=Running", "nginx", "name:nginx-*"} {
			t.Run(name+"/"+text, func(t *testing.T) {
				q, err := query.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for _, report := range reports {
					for _, r := range report.Put {
						object := visibility.Object{Class: search.ClassOf(report.Cluster, report.Hub, r.Properties), Name: search.Text(r.Properties, "name")}
						if q.Matches(report.Cluster, r.Properties, fleetgen.Epoch) && scope.Allows(object) {
							want = append(want, r.UID)
						}
					}
				}
				slices.Sort(want)
				if got := uids(t, engine, scope, q); len(want) == 0 || !slices.Equal(got, want) {
					t.Errorf("resources found = %d, want %d and at least one", len(got), len(want))
				}
				samePages(t, engine, scope, q, len(want))
				sameNumbersOfRelated(t, engine, scope, q)
			})
		}
	}
}

// samePages checks that pages at different offsets, ordered by name, match the complete list.
func samePages(t *testing.T, engine search.Engine, scope visibility.Scope, q query.Query, count int) {
	t.Helper()
	order := []search.Order{{Property: "name"}}
	whole, err := engine.Search(within(t), scope, &search.Request{Query: q, Now: fleetgen.Epoch, Items: true, Limit: -1, OrderBy: order})
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Items) != count {
		t.Fatalf("items ordered by name = %d, want %d", len(whole.Items), count)
	}
	for _, offset := range []int{0, 1, count / 2, count - 1} {
		part, err := engine.Search(within(t), scope, &search.Request{Query: q, Now: fleetgen.Epoch, Items: true, Limit: 7, Offset: offset, OrderBy: order})
		if err != nil {
			t.Fatal(err)
		}
		for i := range part.Items {
			if part.Items[i].UID != whole.Items[offset+i].UID {
				t.Errorf("item %d at offset %d = %s, want %s", i, offset, part.Items[i].UID, whole.Items[offset+i].UID)
			}
		}
		if len(part.Items) != min(7, count-offset) {
			t.Errorf("items at offset %d = %d, want %d", offset, len(part.Items), min(7, count-offset))
		}
	}
}

// sameNumbersOfRelated checks that the counts of related resources are equal with and without items.
func sameNumbersOfRelated(t *testing.T, engine search.Engine, scope visibility.Scope, q query.Query) {
	t.Helper()
	ask := func(items bool) map[string]int {
		result, err := engine.Search(within(t), scope, &search.Request{Query: q, Now: fleetgen.Epoch, Related: true, RelatedItems: items, RelatedLimit: -1})
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]int{}
		for _, related := range result.Related {
			numbers[related.Kind] = related.Count
			if items && related.Count != len(related.Items) {
				t.Errorf("count of related kind %s = %d, want the number of items, %d", related.Kind, related.Count, len(related.Items))
			}
		}
		return numbers
	}
	counted, found := ask(false), ask(true)
	if difference := gocmp.Diff(found, counted); difference != "" || len(found) == 0 {
		t.Errorf("counts of related resources (-with items +without items):\n%s", difference)
	}
}

// TestReadsWhileClustersChange checks that reads are consistent while a cluster is removed and reported again.
func TestReadsWhileClustersChange(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	fleet := fleetgen.Options{Clusters: 3, PerCluster: 200}
	for i := range fleet.Clusters {
		mustApply(t, engine, fleetgen.Cluster(fleet, i))
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				result, err := engine.Search(within(t), visibility.Everything(), &search.Request{Items: true, Limit: -1, Related: true})
				if err != nil {
					t.Error(err)
					return
				}
				if result.Count != len(result.Items) {
					t.Errorf("count = %d, want %d, the number of items", result.Count, len(result.Items))
					return
				}
			}
		})
	}
	for range 10 {
		if err := engine.RemoveCluster(within(t), fleetgen.ClusterName(1)); err != nil {
			t.Error(err)
		}
		mustApply(t, engine, fleetgen.Cluster(fleet, 1))
	}
	close(stop)
	asking.Wait()
}
