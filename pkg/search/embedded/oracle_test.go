package embedded_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// naive answers questions by reading every resource of the applied reports.
type naive struct {
	resources map[string]search.Resource
	clusters  map[string]*search.Report
}

func (n *naive) apply(report *search.Report) {
	for _, r := range report.Put {
		n.resources[r.UID] = r
		n.clusters[r.UID] = report
	}
	for _, uid := range report.Delete {
		delete(n.resources, uid)
	}
}

// found returns the sorted UIDs of the matching resources in the scope.
func (n *naive) found(scope visibility.Scope, q *query.Query, now time.Time, by []search.Order) []string {
	var uids []string
	for uid, r := range n.resources {
		report := n.clusters[uid]
		object := visibility.Object{Class: search.ClassOf(report.Cluster, report.Hub, r.Properties), Name: search.Text(r.Properties, query.Name)}
		if scope.Allows(object) && q.Matches(report.Cluster, r.Properties, now) {
			uids = append(uids, uid)
		}
	}
	slices.SortFunc(uids, func(a, b string) int {
		for _, order := range by {
			pa, pb := n.property(a, order.Property), n.property(b, order.Property)
			switch {
			case pa == nil && pb == nil:
				continue
			case pa == nil:
				return 1
			case pb == nil:
				return -1
			}
			result := query.CompareTexts(query.OrderText(pa.Leaves[0]), query.OrderText(pb.Leaves[0]))
			if order.Descending {
				result = -result
			}
			if result != 0 {
				return result
			}
		}
		return cmp.Compare(a, b)
	})
	return uids
}

// property returns a property of a resource, or nil.
func (n *naive) property(uid, name string) *query.Property {
	if name == query.Cluster {
		return &query.Property{Name: name, Leaves: []query.Leaf{{Text: n.clusters[uid].Cluster}}}
	}
	return n.resources[uid].Properties.Get(name)
}

// values counts the values of a property.
func (n *naive) values(uids []string, property string) map[string]int {
	counts := map[string]int{}
	for _, uid := range uids {
		if p := n.resources[uid].Properties.Get(property); p != nil {
			seen := map[string]bool{}
			for _, leaf := range p.Leaves {
				if text := query.LeafText(p.Type, leaf); !seen[text] {
					seen[text] = true
					counts[text]++
				}
			}
		}
	}
	return counts
}

// questionTexts cover all methods of finding terms in large dictionaries.
var questionTexts = []string{
	"", "kind:Pod", "kind:pod", "kind:Pod status!=Running", "status:!=Running,!=Active", "restarts>3", "restarts<=2 kind:Pod", "restarts:0",
	"created:day", "created:month", "created<month", "created!=month", "created>2025-06-01", "created>=2025-10-31T23:00:00Z", "created:2025-09*", "created:2025-10-1*",
	"startedAt:week", "startedAt<=2025-08-15",
	"name:nginx-*", "name:*-api", "name:*in*o*", "name:*", "name>m", "name<=kafka", "name!=nginx-*", "label:team=team-07", "label:team", "label:*name=redis*", "label!=env=prod",
	"image:*istio*", "container:istio-proxy", "condition:Ready=False", "cluster:cluster-001,cluster-002", "cluster!=local-cluster",
	"nginx", "ngi ingress", "ng", "g", "e", "x", "q", "t", "0", "/", "_", `"="`, ".", "kind:Node w", "kind:Pod e r", "namespace:payments y", "2025-10", "01T1", "12:3", "55Z", "redis payments", "istio", "team=team-0", "name=nginx", "CLUSTER-00", "kubernetes", "10.", "zzzzzz",
	"podIP:10.12*", "podIP:*.1.*", "nothing:x", "nothing!=x", "_ownerUID:*1*",
}

func TestAnswersEqualOracle(t *testing.T) {
	for _, name := range []string{"InMemory", "FromCheckpoints"} {
		t.Run(name, func(t *testing.T) {
			r, dir := seed.Rand(t), t.TempDir()
			engine := open(t, dir, embedded.Options{})
			defer func() { closed(t, engine) }()
			compareAll(t, engine, fleetgen.Options{Clusters: 4, PerCluster: 1500, Seed: r.Uint64()}, r, func(changed bool) search.Engine {
				switch {
				case name != "FromCheckpoints":
				case changed:
					// Some changes follow the checkpoint.
					closed(t, engine)
					engine = open(t, dir, embedded.Options{})
				case r.IntN(2) == 0:
					checkpoint(t, engine)
				default:
					if err := engine.Checkpoint(func() {}); err != nil {
						t.Fatal(err)
					}
				}
				return engine
			})
		})
	}
}

// compareAll compares the answers of an engine and the oracle. It calls next amid changes and after them,
// and continues with the returned engine.
func compareAll(t *testing.T, engine search.Engine, options fleetgen.Options, r *rand.Rand, next func(changed bool) search.Engine) {
	t.Helper()
	oracle := &naive{resources: map[string]search.Resource{}, clusters: map[string]*search.Report{}}
	var reports []*search.Report
	for i := range options.Clusters {
		reports = append(reports, fleetgen.Cluster(options, i))
		apply(t, engine, reports[i])
		oracle.apply(reports[i])
	}
	scopes := []visibility.Scope{
		visibility.Everything(), visibilitytest.Scope(t, fleetgen.Policy(1, 2, 30), &user.DefaultInfo{Name: fleetgen.User}), {},
	}
	for range 3 {
		for _, text := range questionTexts {
			q := parse(t, text)
			scope := scopes[r.IntN(len(scopes))]
			if r.IntN(3) > 0 {
				scope = scopes[0]
			}
			compare(t, engine, oracle, scope, &q, text, r)
		}
		for i := range 20 {
			if i == 10 {
				engine = next(false)
			}
			delta := fleetgen.Update(r, reports[r.IntN(len(reports))], 1+r.IntN(30))
			gone := reports[slices.IndexFunc(reports, func(full *search.Report) bool { return full.Cluster == delta.Cluster })].Put
			for range r.IntN(5) {
				delta.Delete = append(delta.Delete, gone[r.IntN(len(gone))].UID)
			}
			apply(t, engine, &delta)
			oracle.apply(&delta)
			text := []string{"g", "nginx"}[i%2]
			q := parse(t, text)
			compare(t, engine, oracle, scopes[0], &q, text, r)
		}
		engine = next(true)
	}
}

func compare(t *testing.T, engine search.Engine, oracle *naive, scope visibility.Scope, q *query.Query, text string, r *rand.Rand) {
	t.Helper()
	now := fleetgen.Epoch
	properties := []string{"name", "created", "restarts", "status", "label", "namespace", "image", "podIP", "kind"}
	by := []search.Order{{Property: properties[r.IntN(len(properties))], Descending: r.IntN(2) == 0}}
	if r.IntN(2) == 0 {
		by = append(by, search.Order{Property: properties[r.IntN(len(properties))], Descending: r.IntN(2) == 0})
	}
	want := oracle.found(scope, q, now, by)
	offset, limit := 0, -1
	if r.IntN(3) > 0 {
		offset, limit = r.IntN(len(want)+2), r.IntN(50)
	}
	result, err := engine.Search(t.Context(), scope, &search.Request{Query: *q, Now: now, Items: true, Offset: offset, Limit: limit, OrderBy: by})
	if err != nil {
		t.Fatalf("Search(%q) = %v, want nil", text, err)
	}
	if result.Count != len(want) {
		t.Errorf("Search(%q): Count = %d, want %d", text, result.Count, len(want))
	}
	page := want[min(offset, len(want)):]
	if limit >= 0 {
		page = page[:min(limit, len(page))]
	}
	uids := make([]string, len(result.Items))
	for i, item := range result.Items {
		uids[i] = item.UID
		if stored := string(oracle.resources[item.UID].Properties.AppendJSON(nil)); stored != string(item.JSON()) {
			t.Fatalf("Search(%q): item %s = %s, want %s", text, item.UID, item.JSON(), stored)
		}
	}
	if !slices.Equal(uids, page) {
		t.Fatalf("Search(%q) by %v, limit %d, offset %d (-want +got)\n%s", text, by, limit, offset, gocmp.Diff(page, uids))
	}
	property := properties[r.IntN(len(properties))]
	completion, err := engine.Complete(t.Context(), scope, &search.CompletionRequest{Property: property, Query: *q, Now: now, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, value := range completion.Values {
		counts[value.Value] = value.Count
	}
	if diff := gocmp.Diff(oracle.values(want, property), counts); diff != "" {
		t.Fatalf("Complete(%q, %s) (-want +got)\n%s", text, property, diff)
	}
	few, err := engine.Complete(t.Context(), scope, &search.CompletionRequest{Property: property, Query: *q, Now: now, Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(few.Values, completion.Values[:min(3, len(completion.Values))]) || few.Numbers != completion.Numbers ||
		few.Times != completion.Times || few.Min != completion.Min || few.Max != completion.Max {
		t.Fatalf("Complete(%q, %s) with a limit = %+v, want the first of %+v", text, property, few, completion)
	}
}

func TestReadersSeeWholeReports(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	clusters := []string{"a", "b", "c"}
	for _, cluster := range clusters {
		apply(t, engine, round(cluster, 1))
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for _, cluster := range clusters {
		writers.Go(func() {
			for n := 2; n < 60; n++ {
				if _, err := engine.Apply(t.Context(), round(cluster, n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				cluster := clusters[i%len(clusters)]
				if err := wholeRound(t, engine, cluster); err != nil {
					t.Errorf("resources of cluster %s: %v", cluster, err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// wholeRound checks that all resources found for a cluster belong to one report.
func wholeRound(t *testing.T, engine search.Engine, cluster string) error {
	result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{
		Query: parse(t, "cluster:"+cluster+" thing"), Items: true, Limit: -1, OrderBy: []search.Order{{Property: "round"}}, Related: true,
	})
	if err != nil {
		return err
	}
	if result.Count != crashResources || len(result.Items) != crashResources {
		return fmt.Errorf("Count = %d with %d items, want equal numbers", result.Count, len(result.Items))
	}
	for i := range result.Items {
		properties, err := query.DecodeProperties(result.Items[i].JSON())
		if err != nil {
			return err
		}
		first, err := query.DecodeProperties(result.Items[0].JSON())
		if err != nil {
			return err
		}
		if search.Text(properties, "round") != search.Text(first, "round") || result.Items[i].Version != result.Items[0].Version {
			return fmt.Errorf("answer contains %s and %s, want resources of one report", result.Items[i].JSON(), result.Items[0].JSON())
		}
	}
	values, err := engine.Complete(t.Context(), visibility.Everything(), &search.CompletionRequest{Property: "round", Query: parse(t, "cluster:"+cluster), Limit: -1})
	if err != nil {
		return err
	}
	if len(values.Values) != 1 || values.Values[0].Count != crashResources {
		return fmt.Errorf("rounds of the cluster = %v, want one", values.Values)
	}
	return nil
}
