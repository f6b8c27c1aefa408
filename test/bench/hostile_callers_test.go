package bench_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/hostile"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	hostileCallers = 20
	// unreadWatches is the number of unread watches of searches, and of unread watches of ManifestWorks.
	unreadWatches = 200
	// settleTimeout bounds the wait until the server's memory has decreased.
	settleTimeout = 30 * time.Second
	worksListed   = 50
)

// besieged is a server with a fleet, and the counters of the requests of hostile callers.
type besieged struct {
	*httpFleet
	classes                                            []hostile.Class
	answered, refused, failed, watches, refusedWatches atomic.Int64
}

// BenchmarkHostileCallers measures requests of an administrator and of an ordinary user over a fleet
// of HOSTILE_RESOURCES resources: for HOSTILE_MINUTES alone, and for the same time with hostile
// callers. The hostile callers search, list, send dry-run writes of the maximum size, and open watches
// that they do not read. Meanwhile, ManifestWorks and resources of the fleet change. All requests go
// directly to the server, which has the memory limits of its manifest.
func BenchmarkHostileCallers(b *testing.B) {
	resources, duration := number(b, "HOSTILE_RESOURCES", 50_000), hostileDuration(b)
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, b.Name())
	}
	f, err := localhub.NewFleet(localhub.FleetOptions{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	if f.Server.Env, err = hostile.ServerEnvironment(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	if err := f.Start(within(b, startTimeout)); err != nil {
		b.Fatal(err)
	}
	clusters := max(2, resources/5000)
	o := fleetgen.Options{Clusters: clusters, PerCluster: resources / clusters}
	s := &besieged{httpFleet: &httpFleet{Fleet: f, options: o, admin: adminClient(b, f)}}
	s.users = searchingUsers(b, f, o)
	s.sendFleet(b)
	s.prepare(b)
	s.classes = slices.DeleteFunc(hostile.Classes(), func(c hostile.Class) bool {
		return !slices.Contains([]string{"search", "graphql", "labelselector", "fieldselector", "listoptions"}, c.Language)
	})
	for range b.N {
		s.settle(b, "before")
		alone := s.measure(b, duration, func(context.Context) {})
		s.settle(b, "before hostile callers")
		var peakRSS, peakAnon float64
		loaded := s.measure(b, duration, func(ctx context.Context) {
			var running sync.WaitGroup
			for i := range hostileCallers {
				running.Go(func() { s.attack(ctx, b, i) })
			}
			running.Go(func() {
				select {
				case <-ctx.Done():
				case <-time.After(duration * 3 / 4):
					fmt.Printf("apiserver under hostile callers: %s\n", s.state(b))
				}
			})
			for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				if rss, anon, err := processMemory(f.Server.PID()); err == nil {
					peakRSS, peakAnon = max(peakRSS, rss), max(peakAnon, anon)
				}
			}
			running.Wait()
		})
		fmt.Printf("%d hostile callers for %s: %d requests answered, %d refused, %d failed or not answered in %s; %d watches left unread, %d refused\n", hostileCallers, duration,
			s.answered.Load(), s.refused.Load(), s.failed.Load(), authorTimeout, s.watches.Load(), s.refusedWatches.Load())
		for _, what := range slices.Sorted(maps.Keys(alone)) {
			report(b, what+", alone", strings.ReplaceAll(what, " ", "-")+"-alone", alone[what])
			report(b, what+", under hostile callers", strings.ReplaceAll(what, " ", "-"), loaded[what])
			ratio := func(p int) float64 {
				return float64(percentile(loaded[what], p)) / float64(percentile(alone[what], p))
			}
			fmt.Printf("  ratio: p50 %.1f, p99 %.1f\n", ratio(50), ratio(99))
		}
		fmt.Printf("apiserver: VmRSS at most %.0f MB, RssAnon at most %.0f MB\n", peakRSS, peakAnon)
		b.ReportMetric(peakRSS, "apiserver-peak-MB")
		s.settle(b, "afterwards")
	}
}

// hostileDuration returns the duration in HOSTILE_MINUTES, which may be a fraction.
func hostileDuration(b *testing.B) time.Duration {
	b.Helper()
	text := os.Getenv("HOSTILE_MINUTES")
	if text == "" {
		return time.Minute
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		b.Fatalf("HOSTILE_MINUTES = %q, want a positive number", text)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// prepare stores ManifestWorks, and grants the ordinary user and the hostile callers their permissions.
func (s *besieged) prepare(b *testing.B) {
	works := []string{"get", "list", "watch", "create", "delete"}
	user := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: callers, Name: "u20"}
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "hostile-callers"}
	role := &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "bench-hostile"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: works},
			{APIGroups: []string{"view.open-cluster-management.io"}, Resources: []string{"managedclusterviews"}, Verbs: []string{"create"}},
		},
	}
	binding := &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: "bench-user"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, Subjects: []rbacv1.Subject{user},
	}
	grants := slices.Concat(allow(b, "hostile", searchUse, group, ""), allow(b, "hostile-works", role.Name, group, ""))
	grants = append(grants, asUnstructured(b, role), asUnstructured(b, binding))
	apply(b, s.Fleet, namespacesFor(sets.New(cluster1), nil), grants)
	for i := range worksListed {
		if err := s.admin.Post().AbsPath(worksPath).SetHeader("Content-Type", "application/json").Body(workBody(fmt.Sprintf("bench-stored-%d", i), 10)).Do(within(b, authorTimeout)).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

// measure repeats the requests of both users until the duration is over, concurrently with load. It
// returns the latencies of each request.
func (s *besieged) measure(b *testing.B, duration time.Duration, load func(context.Context)) map[string][]time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), duration)
	defer cancel()
	var mu sync.Mutex
	took, errs := map[string][]time.Duration{}, map[string][]error{}
	var running sync.WaitGroup
	running.Go(func() { load(ctx) })
	running.Go(func() { s.change(ctx) })
	direct := way{"direct", s.Server.ServiceAccountConfig}
	for who, u := range map[string]searchUser{"administrator": s.users[0], "ordinary user": s.users[1]} {
		client := direct.client(b, callers, strings.ToLower(u.name))
		name := "bench-" + strings.ToLower(u.name)
		steps := map[string]func(context.Context) error{
			"get of a ManifestWork": func(ctx context.Context) error {
				return client.Get().AbsPath(worksPath, "bench-stored-1").Do(ctx).Error()
			},
			"list of ManifestWorks": func(ctx context.Context) error { return client.Get().AbsPath(worksPath).Do(ctx).Error() },
			"search":                func(ctx context.Context) error { return queryNamed("2").post(ctx, client, u) },
			"create of a ManifestWork and deletion": func(ctx context.Context) error {
				if err := client.Post().AbsPath(worksPath).SetHeader("Content-Type", "application/json").Body(workBody(name, 1)).Do(ctx).Error(); err != nil {
					return err
				}
				return client.Delete().AbsPath(worksPath, name).Do(ctx).Error()
			},
		}
		running.Go(func() {
			for ctx.Err() == nil {
				for what, step := range steps {
					// A request in progress continues after the duration is over.
					stepping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*authorTimeout)
					began, key := time.Now(), who+": "+what
					err := step(stepping)
					cancel()
					mu.Lock()
					if took[key] = append(took[key], time.Since(began)); err != nil {
						errs[key] = append(errs[key], err)
					}
					mu.Unlock()
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	running.Wait()
	for key, all := range errs {
		fmt.Printf("%s failed %d times: %v\n", key, len(all), all[0])
	}
	return took
}

// workBody returns a ManifestWork of ConfigMaps in JSON.
func workBody(name string, manifests int) []byte {
	return (&author{}).creating(name, executorNamespace, manifests).Body
}

// change changes a large ManifestWork and resources of the fleet until ctx ends.
func (s *besieged) change(ctx context.Context) {
	r, text := rand.New(rand.NewPCG(5, 6)), strings.Repeat("x", 100<<10)
	for i, tick := 0, time.NewTicker(200*time.Millisecond); ctx.Err() == nil; i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.example.com/text":"%d %s"}}}`, i, text)
		if err := s.admin.Patch(types.MergePatchType).AbsPath(worksPath, "bench-stored-0").Body(patch).Do(ctx).Error(); err != nil && ctx.Err() == nil {
			fmt.Println("change of a ManifestWork:", err)
		}
		update := fleetgen.Update(r, s.pods[i%len(s.pods)], 100)
		if _, err := s.sync(ctx, &update, false); err != nil && ctx.Err() == nil {
			fmt.Println("change of the fleet:", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// attack sends the requests of one hostile caller until ctx ends.
func (s *besieged) attack(ctx context.Context, b *testing.B, number int) {
	config, err := s.Server.UserConfig(fmt.Sprintf("hostile-caller-%d", number), "hostile-callers")
	if err != nil {
		b.Error(err)
		return
	}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		b.Error(err)
		return
	}
	secure.NextProtos, secure.ServerName = []string{"http/1.1"}, "127.0.0.1"
	client, err := authorClient(config)
	if err != nil {
		b.Error(err)
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for i := range 2 * unreadWatches / hostileCallers {
		path := searchPath + "fleetresources?watch=true" + []string{"", "&fieldSelector=kind%3DPod", "&fieldSelector=kind%3DNode", "&fieldSelector=status%3DRunning"}[i%4]
		if i >= unreadWatches/hostileCallers {
			path = "/apis/work.open-cluster-management.io/v1/manifestworks?watch=true"
		}
		running.Go(func() { s.unread(ctx, secure, config.Host, path) })
	}
	a := &author{client: client, host: config.Host, answers: &s.answered, refusals: &s.refused, failures: &s.failed}
	for kind := range 4 {
		r := rand.New(rand.NewPCG(uint64(number), uint64(kind)))
		running.Go(func() {
			for ctx.Err() == nil {
				for _, request := range s.requests(kind, r) {
					a.send(ctx, request)
				}
			}
		})
	}
}

// requests returns the next requests of a hostile caller.
func (s *besieged) requests(kind int, r *rand.Rand) []hostile.Request {
	post := func(resource, kind, spec string) []hostile.Request {
		return []hostile.Request{{Method: http.MethodPost, Path: searchPath + resource, Body: fmt.Appendf(nil, `{"apiVersion":"search.open-cluster-management.io/v1alpha1","kind":%q,"spec":%s}`, kind, spec)}}
	}
	switch {
	case kind < 3 && r.IntN(4) == 0:
		c := hostile.Case{Class: &s.classes[r.IntN(len(s.classes))], Size: 1 + r.IntN(100), Seed: r.Uint64()}
		return c.Input().Requests
	case kind == 0 && r.IntN(4) == 0:
		return post("searchcompletions", "SearchCompletion", `{"property":"name","limit":-1,"query":"name:*a*"}`)
	case kind == 0:
		specs := []string{
			`{"query":"e","limit":-1}`, `{"query":"a e i n r s t"}`, `{"query":"name:*a*e*n*","orderBy":["name desc"],"offset":10000}`,
			`{"query":"kind:Pod","output":"Related","relatedLimit":-1}`, `{"query":"status!=Running","orderBy":["created desc"],"limit":-1}`,
		}
		return post("searches", "Search", specs[r.IntN(len(specs))])
	case kind == 1:
		return []hostile.Request{{Method: http.MethodPost, Path: searchPath + "graphql", Body: []byte(`{"query":"{ search(input: [{keywords: [\"e\"], limit: -1}, {filters: [{property: \"kind\", values: [\"Pod\"]}], limit: -1}]) { count items related { kind count items } } searchComplete(property: \"name\", limit: 1000) }"}`)}}
	case kind == 2:
		selector := make([]string, 250)
		for i := range selector {
			selector[i] = fmt.Sprintf("absent-%d notin (%s)", i, strings.Repeat("v", 63)+","+strings.Repeat("w", 63))
		}
		query := url.Values{"labelSelector": {strings.Join(selector, ",")}}.Encode()
		return []hostile.Request{{Method: http.MethodGet, Path: "/apis/work.open-cluster-management.io/v1/manifestworks?" + query}, {Method: http.MethodGet, Path: searchPath + "fleetresources?limit=1000&" + query}}
	}
	return []hostile.Request{{Method: http.MethodPost, Path: worksPath + "?dryRun=All", Body: workBody("bench-dry-run", 2000)}}
}

// unread opens a watch on a separate connection, reads only the header of the response, and closes the
// connection when ctx ends. It retries a refused watch.
func (s *besieged) unread(ctx context.Context, secure *tls.Config, host, path string) {
	for ctx.Err() == nil {
		dialer := net.Dialer{Timeout: authorTimeout}
		if conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(host, "https://")); err == nil {
			// Closing the connection unblocks pending reads and writes.
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_ = conn.SetDeadline(time.Now().Add(authorTimeout))
			stream := tls.Client(conn, secure)
			request, _ := http.NewRequest(http.MethodGet, host+path, nil)
			if request.Write(stream) == nil {
				if response, err := http.ReadResponse(bufio.NewReaderSize(stream, 16), request); err == nil && response.StatusCode == http.StatusOK {
					s.watches.Add(1)
					<-ctx.Done()
				} else if err == nil {
					s.refusedWatches.Add(1)
				}
			}
			stop()
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// settle runs garbage collections until the server's memory no longer decreases, and prints the memory.
func (s *besieged) settle(b *testing.B, when string) {
	b.Helper()
	ctx := within(b, settleTimeout)
	var rss, anon float64
	for least := 0.0; ctx.Err() == nil; {
		var err error
		if rss, anon, err = processMemory(s.Server.PID()); err != nil {
			b.Skipf("reading the resident memory requires /proc: %v", err)
		}
		if least > 0 && rss > least*0.99 {
			break
		}
		least = rss
		if _, err := s.admin.Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil && ctx.Err() == nil {
			b.Fatal(err)
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
	}
	fmt.Printf("apiserver %s: VmRSS %.0f MB, RssAnon %.0f MB; %s\n", when, rss, anon, s.state(b))
}

// state returns the memory and the watches of the server, from its metrics.
func (s *besieged) state(b *testing.B) string {
	b.Helper()
	content, err := s.admin.Get().AbsPath("/metrics").DoRaw(within(b, authorTimeout))
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(content)) {
		for _, name := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "hub_apiserver_search_watch_memory_bytes ", "hub_apiserver_caller_open{"} {
			if strings.HasPrefix(line, name) {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(out, ", ")
}

// processMemory returns VmRSS and RssAnon of a process in MB.
func processMemory(pid int) (rss, anon float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %f", &rss)
		_, _ = fmt.Sscanf(line, "RssAnon: %f", &anon)
	}
	return rss / 1024, anon / 1024, err
}
