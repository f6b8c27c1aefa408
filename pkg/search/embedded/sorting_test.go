package embedded_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// testedOrders contains properties of all types, alone and in pairs.
var testedOrders = [][]search.Order{
	{{Property: "name"}},
	{{Property: "name", Descending: true}},
	{{Property: "created", Descending: true}},
	{{Property: "status"}, {Property: "restarts", Descending: true}},
	{{Property: "status", Descending: true}, {Property: "cluster"}, {Property: "name"}},
	{{Property: "image", Descending: true}, {Property: "name"}},
	{{Property: "label"}},
	{{Property: "cluster", Descending: true}, {Property: "namespace"}},
}

// changed returns a report with all kinds of changes: other values, names and namespaces, another
// order in a list, removed values, and new and deleted resources.
func changed(r *rand.Rand, oracle *naive, full *search.Report, size int) *search.Report {
	report := &search.Report{Cluster: full.Cluster, Hub: full.Hub, Time: full.Time}
	for range size {
		original := full.Put[r.IntN(len(full.Put))]
		resource := search.Resource{UID: original.UID, Properties: slices.Clone(original.Properties)}
		set := func(name, value string) {
			for i := range resource.Properties {
				if p := &resource.Properties[i]; p.Name == name && p.Type == query.String {
					p.Leaves = []query.Leaf{{Text: value}}
				}
			}
		}
		switch r.IntN(8) {
		case 0:
			set("name", fmt.Sprintf("name-%d", r.IntN(50)))
		case 1:
			set("namespace", "payments")
		case 2:
			set("created", fmt.Sprintf("2025-01-01T00:00:%02dZ", r.IntN(60)))
		case 3:
			for i := range resource.Properties {
				if p := &resource.Properties[i]; p.Type == query.List {
					p.Leaves = slices.Clone(p.Leaves)
					slices.Reverse(p.Leaves)
				}
			}
		case 4:
			resource.Properties = slices.DeleteFunc(resource.Properties, func(p query.Property) bool { return p.Name == "status" || p.Name == "label" })
		case 5:
			resource.UID = full.Cluster + "/new-" + strconv.Itoa(r.IntN(100))
		case 6:
			if _, exists := oracle.resources[resource.UID]; exists {
				report.Delete = append(report.Delete, resource.UID)
				continue
			}
		default:
			set("status", fmt.Sprintf("Status%d", r.IntN(5)))
		}
		report.Put = append(report.Put, resource)
	}
	// A report must not put a resource that it deletes.
	report.Put = slices.DeleteFunc(report.Put, func(p search.Resource) bool { return slices.Contains(report.Delete, p.UID) })
	// If a report puts a UID twice, the last occurrence applies.
	seen := map[string]bool{}
	slices.Reverse(report.Put)
	report.Put = slices.DeleteFunc(report.Put, func(p search.Resource) bool {
		was := seen[p.UID]
		seen[p.UID] = true
		return was
	})
	return report
}

func TestOrdersFollowChanges(t *testing.T) {
	r := seed.Rand(t)
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	oracle := &naive{resources: map[string]search.Resource{}, clusters: map[string]*search.Report{}}
	options := fleetgen.Options{Clusters: 3, PerCluster: 600, Seed: r.Uint64()}
	var reports []*search.Report
	for i := range options.Clusters {
		reports = append(reports, fleetgen.Cluster(options, i))
		apply(t, engine, reports[i])
		oracle.apply(reports[i])
	}
	scopes := []visibility.Scope{
		visibility.Everything(), visibilitytest.Scope(t, fleetgen.Policy(1, 1, 5), &user.DefaultInfo{Name: fleetgen.User}),
	}
	texts := []string{"", "kind:Pod", "kind:Deployment namespace:payments"}
	for round := range 40 {
		for range 1 + r.IntN(3) {
			report := changed(r, oracle, reports[r.IntN(len(reports))], 1+r.IntN(60))
			apply(t, engine, report)
			oracle.apply(report)
		}
		for _, by := range testedOrders {
			scope, text := scopes[r.IntN(len(scopes))], texts[r.IntN(len(texts))]
			q := parse(t, text)
			want := oracle.found(scope, &q, fleetgen.Epoch, by)
			if diff := gocmp.Diff(want, pages(t, engine, scope, q, by, 1+r.IntN(400)), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("round %d: Search(%q) by %v (-want +got):\n%s", round, text, by, diff)
			}
			compareCompletion(t, engine, oracle, scope, by[0].Property)
			offset := r.IntN(len(want) + 1)
			result, err := engine.Search(t.Context(), scope, &search.Request{Query: q, Now: fleetgen.Epoch, Items: true, Offset: offset, Limit: 20, OrderBy: by})
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want[offset:min(len(want), offset+20)], uids(result.Items), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("round %d: Search(%q) by %v from %d (-want +got):\n%s", round, text, by, offset, diff)
			}
		}
	}
}

// compareCompletion compares the values of a property without a query.
func compareCompletion(t *testing.T, engine search.Engine, oracle *naive, scope visibility.Scope, property string) {
	t.Helper()
	if property == query.Cluster {
		return
	}
	completion, err := engine.Complete(t.Context(), scope, &search.CompletionRequest{Property: property, Now: fleetgen.Epoch, Limit: 1500})
	if err != nil {
		t.Fatal(err)
	}
	want := oracle.values(oracle.found(scope, &query.Query{}, fleetgen.Epoch, nil), property)
	got := map[string]int{}
	for _, value := range completion.Values {
		got[value.Value] = value.Count
	}
	if completion.More != (len(want) > 1500) || !completion.More && !maps.Equal(want, got) {
		t.Fatalf("Complete(%s) (-want +got):\n%s", property, gocmp.Diff(want, got))
	}
}

// TestOrdersAndCompletionsAfterPropertyRemoval removes a property and adds it again.
func TestOrdersAndCompletionsAfterPropertyRemoval(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	with := func(ranks ...string) *search.Report {
		report := &search.Report{Cluster: "c"}
		for i, rank := range ranks {
			properties := query.Properties{{Name: "name", Leaves: []query.Leaf{{Text: "n"}}}}
			if rank != "" {
				properties = append(properties, query.Property{Name: "rank", Leaves: []query.Leaf{{Text: rank}}})
			}
			report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("c/%d", i), Properties: properties})
		}
		return report
	}
	for _, step := range []struct {
		ranks  []string
		order  []string
		values []search.ValueCount
	}{
		{[]string{"c", "b", "a"}, []string{"c/2", "c/1", "c/0"}, []search.ValueCount{{Value: "a", Count: 1}, {Value: "b", Count: 1}, {Value: "c", Count: 1}}},
		{[]string{"", "", ""}, []string{"c/0", "c/1", "c/2"}, nil},
		{[]string{"", "b", "b"}, []string{"c/1", "c/2", "c/0"}, []search.ValueCount{{Value: "b", Count: 2}}},
		{[]string{"a", "", "b"}, []string{"c/0", "c/2", "c/1"}, []search.ValueCount{{Value: "a", Count: 1}, {Value: "b", Count: 1}}},
	} {
		apply(t, engine, with(step.ranks...))
		for range 2 {
			if diff := gocmp.Diff(step.order, pages(t, engine, visibility.Everything(), query.Query{}, []search.Order{{Property: "rank"}}, 2)); diff != "" {
				t.Errorf("order of ranks %q (-want +got):\n%s", step.ranks, diff)
			}
			completion, err := engine.Complete(t.Context(), visibility.Everything(), &search.CompletionRequest{Property: "rank", Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(step.values, completion.Values); diff != "" {
				t.Errorf("values of ranks %q (-want +got):\n%s", step.ranks, diff)
			}
		}
	}
}

func uids(items []search.Item) []string {
	result := make([]string, len(items))
	for i := range items {
		result[i] = items[i].UID
	}
	return result
}

// pages returns the UIDs of all matches, read page by page.
func pages(t *testing.T, engine search.Engine, scope visibility.Scope, q query.Query, by []search.Order, limit int) []string {
	t.Helper()
	var all []string
	request := search.Request{Query: q, Now: fleetgen.Epoch, Items: true, Limit: limit, OrderBy: by}
	for {
		result, err := engine.Search(t.Context(), scope, &request)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, uids(result.Items)...)
		if request.Continue = result.Continue; request.Continue == "" {
			return all
		}
	}
}

// TestOrdersOfLargeFleetsDuringIngest searches while reports are applied.
func TestOrdersOfLargeFleetsDuringIngest(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	r := seed.Rand(t)
	options := fleetgen.Options{Clusters: 4, PerCluster: 5000, Seed: r.Uint64()}
	var full *search.Report
	for i := range options.Clusters {
		full = fleetgen.Cluster(options, i)
		apply(t, engine, full)
	}
	by := []search.Order{{Property: "status", Descending: true}, {Property: "name"}}
	stop := make(chan struct{})
	var reporting, asking sync.WaitGroup
	reporting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			update := fleetgen.Update(r, full, 10)
			if _, err := engine.Apply(t.Context(), &update); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 3 {
		asking.Go(func() {
			for asked := 0; asked < 200 && !t.Failed(); asked++ {
				if err := pageInOrder(t, engine, by); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	reporting.Wait()
}

// pageInOrder checks the order of a page of Pods by status, descending, and name.
func pageInOrder(t *testing.T, engine search.Engine, by []search.Order) error {
	result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{
		Query: parse(t, "kind:Pod"), Items: true, Offset: 1000, Limit: 200, OrderBy: by,
	})
	if err != nil {
		return err
	}
	var before [2]string
	for i, item := range result.Items {
		properties, err := query.DecodeProperties(item.JSON())
		if err != nil {
			return err
		}
		now := [2]string{search.Text(properties, "status"), search.Text(properties, "name")}
		if i > 0 && (now[0] > before[0] || now[0] == before[0] && now[1] < before[1]) {
			return fmt.Errorf("page contains %v after %v, want the reverse order", now, before)
		}
		before = now
	}
	if len(result.Items) != 200 {
		return fmt.Errorf("page has %d items, want 200", len(result.Items))
	}
	return nil
}
