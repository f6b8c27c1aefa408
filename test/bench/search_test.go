package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

const (
	searchClients = 8
	// measured is the duration of the measurement of each query, for each user and number of clients.
	measured = 300 * time.Millisecond
	// underUpdates is the duration of the measurement of all queries under updates.
	underUpdates = 5 * time.Second
	// updatesPerSecond is the rate of updates of all clusters. Each report contains updatesPerReport.
	updatesPerSecond = 5000
	updatesPerReport = 10
	// overHTTP is the number of updates in a report over HTTP, of agents that send ten reports a second.
	overHTTP = 50
	// changing is the number of clusters that report updates.
	changing = 10
)

// searchedFleet is an engine that contains a fleet.
type searchedFleet struct {
	engine  search.Engine
	options fleetgen.Options
	users   []searchUser
	// pods are reports of only the Pods of some clusters, from which updates are generated.
	pods []*search.Report
}

type searchUser struct {
	name  string
	scope visibility.Scope
	// first is the index of the first managed cluster that the user may view.
	first int
}

func fleetSize(b *testing.B) fleetgen.Options {
	b.Helper()
	return fleetgen.Options{Clusters: number(b, "SEARCH_CLUSTERS", 100), PerCluster: number(b, "SEARCH_PER_CLUSTER", 5000)}
}

func restricted(b *testing.B, policy string) visibility.Scope {
	b.Helper()
	return visibilitytest.Scope(b, policy, &user.DefaultInfo{Name: fleetgen.User})
}

func searchUsers(b *testing.B, o fleetgen.Options) []searchUser {
	b.Helper()
	seen := max(1, o.Clusters/5)
	last := max(1, o.Clusters-seen)
	return []searchUser{
		{"admin", visibility.Everything(), 1},
		{"U20", restricted(b, fleetgen.Policy(1, seen, 50)), 1},
		{"U80", restricted(b, fleetgen.Policy(last, seen, 50)), last},
	}
}

// reportFleet reports the whole fleet to an engine, and prints the rate.
func reportFleet(b *testing.B, engine search.Engine, o fleetgen.Options) *searchedFleet {
	b.Helper()
	f := &searchedFleet{engine: engine, options: o, users: searchUsers(b, o)}
	var took time.Duration
	var each []time.Duration
	resources, edges := 0, 0
	for i := range o.Clusters {
		full := fleetgen.Cluster(o, i)
		started := time.Now()
		applied, err := engine.Apply(b.Context(), full)
		if err != nil {
			b.Fatalf("report of %s: %v", full.Cluster, err)
		}
		each = append(each, time.Since(started))
		took += each[len(each)-1]
		resources += applied.Resources
		edges += applied.Edges
		if i > 0 && len(f.pods) < changing {
			f.pods = append(f.pods, onlyPods(full))
		}
	}
	perSecond := float64(resources) / took.Seconds()
	b.ReportMetric(perSecond, "ingest-resources/s")
	fmt.Printf("%d resources and %d edges in %.1f s: %.0f resources/s (baseline 8,600-9,900), a cluster of %d in\n", resources, edges, took.Seconds(), perSecond, o.PerCluster)
	report(b, "  full report", "full", each)
	return f
}

// onlyPods removes all resources except Pods from a report.
func onlyPods(full *search.Report) *search.Report {
	full.Put = slices.DeleteFunc(full.Put, func(r search.Resource) bool { return search.Text(r.Properties, query.Kind) != "Pod" })
	full.AddEdges = nil
	return full
}

// reportUpdates sends updates of the Pods of each cluster until ctx ends: perReport updates in each
// report, and updatesPerSecond of all clusters. It returns the number of updates.
func reportUpdates(ctx context.Context, b *testing.B, clusters []*search.Report, perReport int, send func(*search.Report) error) int {
	limiter := rate.NewLimiter(rate.Limit(updatesPerSecond/perReport), len(clusters))
	var count atomic.Int64
	var sending sync.WaitGroup
	for i, pods := range clusters {
		sending.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for limiter.Wait(ctx) == nil {
				update := fleetgen.Update(r, pods, perReport)
				if err := send(&update); err != nil {
					b.Errorf("update of %s: %v", update.Cluster, err)
					return
				}
				count.Add(int64(len(update.Put)))
			}
		})
	}
	sending.Wait()
	return int(count.Load())
}

// benchmarkEngine measures an engine without HTTP.
func benchmarkEngine(b *testing.B, engine search.Engine) {
	f := reportFleet(b, engine, fleetSize(b))
	f.measureReports(b)
	f.measureQueries(b, 1, searchClients)
	f.measureUnderUpdates(b)
	f.measureColdCallers(b)
}

// measureReports measures reports of few changes, and full reports without changes.
func (f *searchedFleet) measureReports(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{1, 100} {
		var took []time.Duration
		for i := range 200 {
			update := fleetgen.Update(r, f.pods[i%len(f.pods)], size)
			started := time.Now()
			if _, err := f.engine.Apply(b.Context(), &update); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(started))
		}
		report(b, fmt.Sprintf("delta of %d (baseline p50 %s ms)", size, map[int]string{1: "2.7", 100: "13"}[size]), fmt.Sprintf("delta-%d", size), took)
	}
	var took []time.Duration
	for i := range min(10, f.options.Clusters) {
		full := fleetgen.Cluster(f.options, f.options.Clusters-1-i)
		started := time.Now()
		if _, err := f.engine.Apply(b.Context(), full); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(started))
	}
	report(b, "unchanged full report (baseline p50 440 ms)", "unchanged", took)
}

// measureUnderUpdates measures all queries with all clients while the clusters send updates.
func (f *searchedFleet) measureUnderUpdates(b *testing.B) {
	for _, u := range f.users {
		ctx, cancel := context.WithTimeout(b.Context(), underUpdates)
		updates := make(chan int, 1)
		go func() {
			updates <- reportUpdates(ctx, b, f.pods, updatesPerReport, func(update *search.Report) error {
				_, err := f.engine.Apply(b.Context(), update)
				return err
			})
		}()
		took := f.repeat(ctx, b, searchClients, u, searchQueries...)
		cancel()
		count := <-updates
		report(b, fmt.Sprintf("all queries of %s, %d clients, %.0f updates/s coming in", u.name, searchClients,
			float64(count)/underUpdates.Seconds()), "updates-"+u.name, took)
	}
}

// measureColdCallers measures the first searches of callers without cached permissions, including
// the evaluation of their permissions.
func (f *searchedFleet) measureColdCallers(b *testing.B) {
	pods := queryNamed("1")
	cold := func(b *testing.B, policy string) func() time.Duration {
		objects := visibilitytest.Parse(b, policy)
		return func() time.Duration {
			started := time.Now()
			scope, err := visibility.Static(objects, &user.DefaultInfo{Name: fleetgen.User})
			if err != nil {
				b.Error(err)
				return 0
			}
			if err := pods.ask(b.Context(), f, searchUser{scope: scope, first: 1}); err != nil {
				b.Error(err)
			}
			return time.Since(started)
		}
	}
	measure := func(what, unit, policy string) {
		first, took := cold(b, policy), []time.Duration(nil)
		for range 20 {
			took = append(took, first())
		}
		report(b, what, unit, took)
	}
	restrictedPolicy := fleetgen.Policy(1, 20, 50)
	measure("first search of a cold caller, hub of 500 namespaces (baseline p50 1,770 ms)", "cold-500", restrictedPolicy)
	measure("  bound in each of them", "cold-500-each", fleetgen.Policy(1, 20, 400))

	// A hot caller is measured alone, and then concurrently with cold callers.
	hot := f.users[1]
	alone := f.repeat(within(b, time.Second), b, 1, hot, pods)
	report(b, "a hot caller alone", "hot-alone", alone)
	ctx := within(b, time.Second)
	var colds sync.WaitGroup
	for range searchClients {
		first := cold(b, restrictedPolicy)
		colds.Go(func() { first() })
	}
	beside := f.repeat(ctx, b, 1, hot, pods)
	colds.Wait()
	report(b, "a hot caller while 8 cold ones come (baseline 12,200 ms once)", "hot-beside-cold", beside)

	larger := f.options
	larger.HubNamespaces, larger.PerCluster = 2000, max(f.options.PerCluster, 5000)
	if _, err := f.engine.Apply(b.Context(), fleetgen.Cluster(larger, 0)); err != nil {
		b.Fatal(err)
	}
	measure("first search of a cold caller, hub of 2,000 namespaces (baseline p50 7,700 ms)", "cold-2000", restrictedPolicy)
	measure("  bound in each of them", "cold-2000-each", fleetgen.Policy(1, 20, 1900))
}

func within(b *testing.B, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}
