package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// fleetOptions returns the size of the fleet: SEARCH_CLUSTERS clusters with SEARCH_PER_CLUSTER
// resources each; by default 20 clusters with 2000 resources.
func fleetOptions(b *testing.B) fleetgen.Options {
	b.Helper()
	options := fleetgen.Options{Clusters: 20, PerCluster: 2000, Seed: 1}
	for name, value := range map[string]*int{"SEARCH_CLUSTERS": &options.Clusters, "SEARCH_PER_CLUSTER": &options.PerCluster} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			*value = n
		}
	}
	return options
}

// resident returns the resident memory of the process after a garbage collection, in bytes.
func resident(b *testing.B) int {
	b.Helper()
	debug.FreeOSMemory()
	return residentNow(b)
}

func residentNow(b *testing.B) int {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		// Only Linux has this file.
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return kb << 10
		}
	}
	return 0
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// BenchmarkFleet prints measurements of a whole fleet: ingest, memory, restart, and each kind of
// question for an administrator and for restricted users.
func BenchmarkFleet(b *testing.B) {
	options := fleetOptions(b)
	total := options.Clusters * options.PerCluster
	dir := b.TempDir()
	engine, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var pods *search.Report
	var applying time.Duration
	for i := range options.Clusters {
		report := fleetgen.Cluster(options, i)
		start := time.Now()
		if _, err := engine.Apply(b.Context(), report); err != nil {
			b.Fatal(err)
		}
		applying += time.Since(start)
		if i == 1 {
			pods = report
		}
	}
	fmt.Printf("full state: %.0f resources/s\n", float64(total)/applying.Seconds())
	start := time.Now()
	if _, err := engine.Apply(b.Context(), pods); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("unchanged full state: %.0f resources/s\n", float64(options.PerCluster)/time.Since(start).Seconds())
	printMemory(b, "after ingest", total)
	if err := engine.Close(); err != nil {
		b.Fatal(err)
	}
	heapBefore := heap()
	start = time.Now()
	if engine, err = embedded.Open(dir, embedded.Options{}); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	}()
	fmt.Printf("restart: %s; heap before: %d MB\n", time.Since(start).Round(time.Millisecond), heapBefore>>20)
	printMemory(b, "after restart", total)
	benchmarkQuestions(b, engine, options)
	benchmarkUpdates(b, engine, options, pods)
	printMemory(b, "at the end", total)
}

func printMemory(b *testing.B, when string, total int) {
	b.Helper()
	now := residentNow(b)
	fmt.Printf("memory %s: %d bytes/resource resident, %d after a collection, %d heap\n", when, now/total, resident(b)/total, heap()/total)
}

type question struct {
	name string
	ask  func(ctx context.Context, scope visibility.Scope) error
}

func questions(b *testing.B, engine search.Engine) []question {
	b.Helper()
	now := fleetgen.Epoch
	parse := func(text string) query.Query {
		q, err := query.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		return q
	}
	find := func(name, text string, request search.Request) question {
		request.Query, request.Now = parse(text), now
		return question{name, func(ctx context.Context, scope visibility.Scope) error {
			_, err := engine.Search(ctx, scope, &request)
			return err
		}}
	}
	complete := func(name, property, text string) question {
		request := search.CompletionRequest{Property: property, Limit: 1000, Query: parse(text), Now: now}
		return question{name, func(ctx context.Context, scope visibility.Scope) error {
			_, err := engine.Complete(ctx, scope, &request)
			return err
		}}
	}
	// inTurn asks for one text after the other, as the console does with each key.
	inTurn := func(name string, texts []string) question {
		var next atomic.Int64
		return question{name, func(ctx context.Context, scope visibility.Scope) error {
			text := texts[int(next.Add(1))%len(texts)]
			_, err := engine.Search(ctx, scope, &search.Request{Query: parse(text), Now: now, Items: true, Limit: 50, CountBy: query.Kind, CountLimit: 1000})
			return err
		}}
	}
	items := search.Request{Items: true, Limit: 1000}
	return []question{
		inTurn("3e keyword of a letter, counts by kind", strings.Split("abcdefghijklmnopqrstuvwxyz0123456789", "")),
		inTurn("3f keyword of two letters, counts by kind", strings.Fields("pa de no na ku st ro wo re le la va te me co ne mo ra pr xy in or ap fr")),
		inTurn("3g Pods with a letter, counts by kind", strings.Split("kind:Pod "+strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), ",kind:Pod "), ",")),
		find("3h keyword of a frequent letter, counts by kind", "p", search.Request{Items: true, Limit: 50, CountBy: query.Kind, CountLimit: 1000}),
		find("1 Pods, 1000", "kind:Pod", items),
		find("1b pods, 1000", "kind:pod", items),
		find("2 Pods filtered, 1000", "kind:Pod namespace:payments status!=Running", items),
		find("3 keyword, 1000", "nginx", items),
		find("3b keyword, count", "nginx", search.Request{}),
		find("3c keyword of digits, count", "2025-10", search.Request{}),
		find("3d keyword of two letters, count", "ng", search.Request{}),
		complete("4a complete label", "label", ""),
		complete("4b complete kind", "kind", ""),
		complete("4c complete name", "name", ""),
		complete("4d complete created", "created", "kind:Pod"),
		complete("4e complete name of Nodes", "name", "kind:Node"),
		find("5 count Pods", "kind:Pod", search.Request{}),
		find("6 Deployments and related counts", "kind:Deployment namespace:payments", search.Request{Items: true, Limit: 1000, Related: true}),
		find("6b related items of ~1000 Pods", "kind:Pod cluster:cluster-003 status:Running", search.Request{Items: true, Limit: 1000, Related: true, RelatedItems: true, RelatedLimit: 1000}),
		find("6d related items of all Pods", "kind:Pod", search.Request{Items: true, Limit: 1000, Related: true, RelatedItems: true, RelatedLimit: 1000}),
		find("6c Deployments of a cluster and related", "kind:Deployment cluster:cluster-005", search.Request{Items: true, Limit: 1000, Related: true, RelatedItems: true, RelatedLimit: 1000}),
		find("7 label, 1000", "label:team=team-07", items),
		find("8 name nginx-*, 1000", "name:nginx-*", items),
		find("9 Pods by name, 5000-5100", "kind:Pod", search.Request{Items: true, Limit: 100, Offset: 5000, OrderBy: []search.Order{{Property: "name"}}}),
		find("9b Pods by restarts, 100", "kind:Pod", search.Request{Items: true, Limit: 100, OrderBy: []search.Order{{Property: "restarts", Descending: true}}}),
		find("9c all by created, 100", "", search.Request{Items: true, Limit: 100, OrderBy: []search.Order{{Property: "created", Descending: true}}}),
		find("11 created this month, count", "created:month", search.Request{}),
		find("11b created before a year, count", "created<year", search.Request{}),
		{"10 schema", func(ctx context.Context, scope visibility.Scope) error {
			_, err := engine.Schema(ctx, scope, &query.Query{}, now)
			return err
		}},
	}
}

type caller struct {
	name  string
	scope visibility.Scope
}

func callers(b *testing.B, options fleetgen.Options) []caller {
	b.Helper()
	some := max(1, options.Clusters/5)
	restricted := func(first int) visibility.Scope {
		return visibilitytest.Scope(b, fleetgen.Policy(first, some, 50), &user.DefaultInfo{Name: fleetgen.User})
	}
	return []caller{
		{"admin", visibility.Everything()},
		{"first clusters", restricted(1)},
		{"last clusters", restricted(options.Clusters - some)},
	}
}

func percentiles(durations []time.Duration) string {
	slices.Sort(durations)
	at := func(p int) float64 {
		return float64(durations[min(len(durations)-1, len(durations)*p/100)].Microseconds()) / 1000
	}
	return fmt.Sprintf("%8.3f /%8.3f", at(50), at(99))
}

func benchmarkQuestions(b *testing.B, engine search.Engine, options fleetgen.Options) {
	b.Helper()
	users := callers(b, options)
	fmt.Printf("%-42s", "p50/p99 in ms")
	var first []string
	for _, u := range users {
		start := time.Now()
		if _, err := engine.Search(b.Context(), u.scope, &search.Request{}); err != nil {
			b.Fatal(err)
		}
		first = append(first, fmt.Sprintf("%s %s", u.name, time.Since(start).Round(time.Microsecond)))
		fmt.Printf("%20s", u.name)
	}
	fmt.Printf("\nfirst search: %s\n", strings.Join(first, ", "))
	for _, q := range questions(b, engine) {
		fmt.Printf("%-42s", q.name)
		for _, u := range users {
			var durations []time.Duration
			for begin := time.Now(); time.Since(begin) < 200*time.Millisecond || len(durations) < 5; {
				start := time.Now()
				if err := q.ask(b.Context(), u.scope); err != nil {
					b.Fatal(err)
				}
				durations = append(durations, time.Since(start))
			}
			fmt.Printf("  %s", percentiles(durations))
		}
		fmt.Println()
	}
}

// benchmarkUpdates measures deltas, and readers during 5,000 updates per second.
func benchmarkUpdates(b *testing.B, engine search.Engine, options fleetgen.Options, pods *search.Report) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var durations []time.Duration
	for range 1000 {
		delta := fleetgen.Update(r, pods, 1)
		start := time.Now()
		if _, err := engine.Apply(b.Context(), &delta); err != nil {
			b.Fatal(err)
		}
		durations = append(durations, time.Since(start))
	}
	fmt.Printf("delta of 1: %s ms\n", percentiles(durations))

	ctx, cancel := context.WithTimeout(b.Context(), 8*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	var updates atomic.Int64
	start := time.Now()
	for i := range 50 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				delta := fleetgen.Update(r, pods, 10)
				if _, err := engine.Apply(ctx, &delta); err != nil {
					break
				}
				updates.Add(10)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	// The baseline contains only these questions.
	all, users := slices.DeleteFunc(questions(b, engine), func(q question) bool {
		return slices.ContainsFunc([]string{"3c", "3d", "3e", "3f", "3g", "3h", "4d", "4e", "6d", "9b", "9c", "11"}, func(extra string) bool { return strings.HasPrefix(q.name, extra) })
	}), callers(b, options)
	byQuestion := make([][][]time.Duration, 8)
	for i := range 8 {
		byQuestion[i] = make([][]time.Duration, len(all))
		wait.Go(func() {
			for n := i * 3; ctx.Err() == nil; n++ {
				start := time.Now()
				if err := all[n%len(all)].ask(ctx, users[n%len(users)].scope); err != nil {
					break
				}
				byQuestion[i][n%len(all)] = append(byQuestion[i][n%len(all)], time.Since(start))
			}
		})
	}
	wait.Wait()
	fmt.Printf("8 readers with %.0f updates/s:\n", float64(updates.Load())/time.Since(start).Seconds())
	for n := range all {
		var durations []time.Duration
		for i := range byQuestion {
			durations = append(durations, byQuestion[i][n]...)
		}
		if len(durations) > 0 {
			slices.Sort(durations)
			fmt.Printf("%-42s  %s  max %s\n", all[n].name, percentiles(durations), durations[len(durations)-1].Round(10*time.Microsecond))
		}
	}
}
