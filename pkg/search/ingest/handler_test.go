package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// TestExchange sends the exact messages of a public collector: at its start, for changes, and when
// it must send a full report.
func TestExchange(t *testing.T) {
	s := serve(t, Config{})
	const empty = `"AddErrors":[],"UpdateErrors":[],"DeleteErrors":[],"AddEdgeErrors":[],"DeleteEdgeErrors":[],"Version":"v1","Access":true}` + "\n"
	steps := []struct {
		name, body string
		header     []string
		want       string
	}{
		{
			name: "a full report", header: []string{"X-Overwrite-State", "true"},
			body: `{"addResources":[` + pod("c1", "a") + `,` + pod("c1", "b") + `,{"kind":"Node","uid":"c1/n","resourceString":"nodes","properties":{"kind":"Node","name":"n"}}],` +
				`"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/n","EdgeType":"runsOn","SourceKind":"Pod","DestKind":"Node"},{"SourceUID":"c1/b","DestUID":"c1/n","EdgeType":"runsOn","SourceKind":"Pod","DestKind":"Node"}],"clearAll":true}`,
			want: `{"TotalAdded":3,"TotalUpdated":0,"TotalDeleted":0,"TotalResources":3,"TotalEdgesAdded":2,"TotalEdgesDeleted":0,"TotalEdges":2,` + empty,
		},
		{
			name: "changes",
			body: `{"addResources":[` + pod("c1", "c") + `],"updateResources":[{"kind":"Pod","uid":"c1/a","resourceString":"pods","properties":{"kind":"Pod","name":"a","status":"Running"}}],` +
				`"addEdges":[{"SourceUID":"c1/c","DestUID":"c1/n","EdgeType":"runsOn","SourceKind":"Pod","DestKind":"Node"}],"version":"2.13.0"}`,
			want: `{"TotalAdded":1,"TotalUpdated":1,"TotalDeleted":0,"TotalResources":4,"TotalEdgesAdded":1,"TotalEdgesDeleted":0,"TotalEdges":3,` + empty,
		},
		{
			name: "a deletion",
			body: `{"deleteResources":[{"uid":"c1/b"}],"deleteEdges":[{"SourceUID":"c1/c","DestUID":"c1/n","EdgeType":"runsOn","SourceKind":"Pod","DestKind":"Node"}],"version":"2.13.0"}`,
			want: `{"TotalAdded":0,"TotalUpdated":0,"TotalDeleted":1,"TotalResources":3,"TotalEdgesAdded":0,"TotalEdgesDeleted":2,"TotalEdges":1,` + empty,
		},
		{
			name: "a heartbeat", body: `{"version":"2.13.0"}`,
			want: `{"TotalAdded":0,"TotalUpdated":0,"TotalDeleted":0,"TotalResources":3,"TotalEdgesAdded":0,"TotalEdgesDeleted":0,"TotalEdges":1,` + empty,
		},
		{
			name: "a rejected resource, so the totals differ from the totals of the collector",
			body: `{"addResources":[` + pod("c2", "x") + `],"updateResources":[{"uid":"c1/y","properties":{"kind":"Pod"}}]}`,
			want: `{"TotalAdded":0,"TotalUpdated":0,"TotalDeleted":0,"TotalResources":3,"TotalEdgesAdded":0,"TotalEdgesDeleted":0,"TotalEdges":1,` +
				`"AddErrors":[{"ResourceUID":"c2/x","Message":"uid must begin with \"c1/\" in reports of this cluster"}],` +
				`"UpdateErrors":[{"ResourceUID":"c1/y","Message":"name is missing"}],"DeleteErrors":[],"AddEdgeErrors":[],"DeleteEdgeErrors":[],"Version":"v1","Access":true}` + "\n",
		},
		{
			name: "the following full report", header: []string{"X-Overwrite-State", "true"},
			body: full("c1", "a", "c"),
			want: `{"TotalAdded":0,"TotalUpdated":1,"TotalDeleted":1,"TotalResources":2,"TotalEdgesAdded":0,"TotalEdgesDeleted":1,"TotalEdges":0,` + empty,
		},
	}
	for _, step := range steps {
		got := s.post(t, "c1", step.body, step.header...)
		if got.code != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: response = %d %v %s, want 200 with application/json", step.name, got.code, got.header, got.body)
		}
		if got.body != step.want {
			t.Errorf("%s: response =\n%s, want\n%s", step.name, got.body, step.want)
		}
	}
	if got := stored(t, s.engine, "c2/x"); got != "" {
		t.Errorf("stored resource of another cluster = %s, want none", got)
	}
	if got, want := stored(t, s.engine, "c1/a"), `{"apiversion":"v1","kind":"Pod","kind_plural":"pods","name":"a"}`; got != want {
		t.Errorf("stored resource = %s, want %s", got, want)
	}
}

func TestEqualEdgesCountOnce(t *testing.T) {
	s := serve(t, Config{})
	edge := `{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"ownedBy","SourceKind":"Pod","DestKind":"Pod"}`
	body := strings.TrimSuffix(full("c1", "a", "b"), "}") + `,"addEdges":[` + edge + `,` + edge + `]}`
	for range 2 {
		if resources, edges := s.post(t, "c1", body).totals(t); resources != 2 || edges != 1 {
			t.Errorf("totals = %d resources and %d edges, want 2 and 1", resources, edges)
		}
	}
}

func TestReporterDeterminesHub(t *testing.T) {
	s := serve(t, Config{})
	for _, cluster := range []string{"c1", hubCluster} {
		body := `{"clearAll":true,"addResources":[{"uid":"` + cluster + `/a","properties":{"kind":"Pod","name":"a","_hubClusterResource":true,"cluster":"c9"}}]}`
		if resources, _ := s.post(t, cluster, body).totals(t); resources != 1 {
			t.Fatalf("resources of %s = %d, want 1", cluster, resources)
		}
	}
	if got, want := stored(t, s.engine, "c1/a"), `{"kind":"Pod","name":"a"}`; got != want {
		t.Errorf("resource of a managed cluster = %s, want %s", got, want)
	}
	if got, want := stored(t, s.engine, hubCluster+"/a"), `{"_hubClusterResource":true,"kind":"Pod","name":"a"}`; got != want {
		t.Errorf("resource of the hub = %s, want %s", got, want)
	}
	states, err := s.engine.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		if state.Hub != (state.Name == hubCluster) {
			t.Errorf("Hub of %s = %v, want %v", state.Name, state.Hub, state.Name == hubCluster)
		}
	}
}

func TestCompressedReport(t *testing.T) {
	s := serve(t, Config{})
	a := s.do(t, s.request(t, http.MethodPost, "c1", zipped(t, strings.NewReader(full("c1", "a", "b"))), "Content-Encoding", "gzip"))
	if resources, _ := a.totals(t); resources != 2 {
		t.Errorf("resources = %d, want 2", resources)
	}
}

// stream hides the length of a body.
func stream(r io.Reader) io.Reader { return io.MultiReader(r) }

func TestRefusals(t *testing.T) {
	s := serve(t, Config{Limits: Limits{BodyBytes: 1 << 20, Resources: 3}})
	s.post(t, "c1", full("c1", "kept")).totals(t)
	long := `{"x":[` + strings.Repeat("0,", 1<<20) + `0]}`
	compressed := zipped(t, strings.NewReader(full("c1", "a"))).String()
	tests := []struct {
		name, method, cluster string
		body                  io.Reader
		encoding              string
		code                  int
		reason                metav1.StatusReason
		message               string
	}{
		{name: "another method", method: http.MethodGet, code: 405, reason: metav1.StatusReasonMethodNotAllowed, message: "not supported"},
		{name: "a cluster that does not exist", cluster: "c99", body: strings.NewReader(full("c99", "a")), code: 404, reason: metav1.StatusReasonNotFound, message: `"c99" not found`},
		{name: "broken JSON", body: strings.NewReader(`{"addResources":[}`), code: 400, reason: metav1.StatusReasonBadRequest, message: "at byte 17"},
		{name: "no body", body: http.NoBody, code: 400, reason: metav1.StatusReasonBadRequest, message: "the body is empty"},
		{name: "deep nesting", body: strings.NewReader(`{"x":` + strings.Repeat("[", 100_000)), code: 400, reason: metav1.StatusReasonBadRequest, message: "exceeded max depth"},
		{name: "a long body", body: strings.NewReader(long), code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "more than 1048576 bytes"},
		{name: "a long body of unknown length", body: stream(strings.NewReader(long)), code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "more than 1048576 bytes"},
		{name: "too many resources", body: strings.NewReader(full("c1", "a", "b", "c", "d")), code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "more than 3 resources"},
		{name: "a compression bomb", body: zipped(t, io.LimitReader(repeat(" "), 100<<20)), encoding: "gzip", code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "more than 1048576 bytes"},
		{name: "a compression bomb of empty members", body: stream(strings.NewReader(strings.Repeat(zipped(t, strings.NewReader("")).String(), 1<<17))), encoding: "gzip", code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "more than 1048576 bytes"},
		{name: "a body that is not compressed", body: strings.NewReader(full("c1", "a")), encoding: "gzip", code: 400, reason: metav1.StatusReasonBadRequest, message: "invalid header"},
		{name: "half a compressed body", body: strings.NewReader(compressed[:len(compressed)/2]), encoding: "gzip", code: 400, reason: metav1.StatusReasonBadRequest, message: "unexpected EOF"},
		{name: "a compressed body with a wrong checksum", body: strings.NewReader(compressed[:len(compressed)-8] + "12345678"), encoding: "gzip", code: 400, reason: metav1.StatusReasonBadRequest, message: "checksum"},
		{name: "another compression", body: strings.NewReader("x"), encoding: "br", code: 415, reason: metav1.StatusReasonUnsupportedMediaType, message: `"br" is not supported; use gzip`},
		{name: "a full report with only resources of another cluster", body: strings.NewReader(full("c2", "a")), code: 422, reason: metav1.StatusReasonInvalid, message: `"c2/a": uid must begin with "c1/"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			method, cluster := http.MethodPost, "c1"
			if test.method != "" {
				method = test.method
			}
			if test.cluster != "" {
				cluster = test.cluster
			}
			r := s.request(t, method, cluster, test.body)
			if test.encoding != "" {
				r.Header.Set("Content-Encoding", test.encoding)
			}
			got := s.do(t, r)
			status := got.status(t)
			if got.code != test.code || status.Reason != test.reason || !strings.Contains(status.Message, test.message) {
				t.Errorf("response = %d %s %q, want %d %s %q", got.code, status.Reason, status.Message, test.code, test.reason, test.message)
			}
			if resources, _ := s.post(t, "c1", `{}`).totals(t); resources != 1 || stored(t, s.engine, "c1/kept") == "" {
				t.Errorf("resources after the rejection = %d, want the stored resource kept", resources)
			}
		})
	}
}

// faulty is an engine that fails, or reports lost data, on demand.
type faulty struct {
	search.Engine
	lock       sync.Mutex
	err        error
	incomplete bool
}

func (f *faulty) set(err error, incomplete bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.err, f.incomplete = err, incomplete
}

func (f *faulty) Apply(ctx context.Context, report *search.Report) (*search.Applied, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.incomplete = f.incomplete && !report.Full
	return f.Engine.Apply(ctx, report)
}

func (f *faulty) Clusters(ctx context.Context) ([]search.ClusterState, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	states, err := f.Engine.Clusters(ctx)
	for i := range states {
		states[i].Incomplete = f.incomplete
	}
	return states, errors.Join(err, f.err)
}

func TestEngineUnavailable(t *testing.T) {
	engine := &faulty{Engine: openEngine(t)}
	s := serve(t, Config{Engine: engine})
	engine.set(errors.New("no route to 192.0.2.1"), false)
	got := s.post(t, "c1", full("c1", "a"))
	if status := got.status(t); got.code != http.StatusServiceUnavailable || strings.Contains(status.Message, "192.0.2.1") {
		t.Errorf("response = %d %q, want 503 without the address", got.code, status.Message)
	}
	retriesLater(t, got)
	engine.set(nil, false)
	if resources, _ := s.post(t, "c1", full("c1", "a")).totals(t); resources != 1 {
		t.Errorf("resources after the engine is available again = %d, want 1", resources)
	}
}

func TestClustersAreUnknown(t *testing.T) {
	s := serve(t, Config{})
	s.fleet.set()
	s.fleet.fail(errors.New("not synced"))
	got := s.post(t, "c1", full("c1", "a"))
	if got.code != http.StatusServiceUnavailable {
		t.Errorf("response = %d, want 503", got.code)
	}
	retriesLater(t, got)
	if resources, _ := s.post(t, hubCluster, full(hubCluster, "a")).totals(t); resources != 1 {
		t.Errorf("resources of the hub = %d, want 1", resources)
	}
}

func retriesLater(t *testing.T, a answer) {
	t.Helper()
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if details := a.status(t).Details; err != nil || seconds < 1 || seconds > 60 || details == nil || int(details.RetryAfterSeconds) != seconds {
		t.Errorf("Retry-After = %q, details = %+v, want equal times of 1 to 60 seconds", a.header.Get("Retry-After"), details)
	}
}

func TestFullReportIsRequestedAfterDataLoss(t *testing.T) {
	engine := &faulty{Engine: openEngine(t)}
	engine.set(nil, true)
	if _, err := engine.Engine.Apply(t.Context(), &search.Report{Cluster: "c1", Full: true, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, Config{Engine: engine})
	// No collector can have these totals, so even an empty cluster detects the request.
	if resources, edges := s.post(t, "c1", `{"updateResources":[`+pod("c1", "a")+`]}`).totals(t); resources != -1 || edges != -1 {
		t.Errorf("totals = %d and %d, want -1 and -1", resources, edges)
	}
	if got := stored(t, s.engine, "c1/a"); got != "" {
		t.Errorf("stored change of an uncertain state = %s, want none", got)
	}
	if resources, _ := s.post(t, "c1", full("c1", "a")).totals(t); resources != 1 {
		t.Errorf("resources after a full report = %d, want 1", resources)
	}
	// The change takes effect immediately, regardless of the cache.
	if resources, _ := s.post(t, "c1", `{"updateResources":[`+pod("c1", "b")+`]}`).totals(t); resources != 2 {
		t.Errorf("resources after a change = %d, want 2", resources)
	}
}

func TestClusterThatWasTheHub(t *testing.T) {
	engine := openEngine(t)
	if _, err := engine.Apply(t.Context(), &search.Report{Cluster: "c1", Hub: true, Full: true, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, Config{Engine: engine})
	if resources, _ := s.post(t, "c1", `{"updateResources":[`+pod("c1", "a")+`]}`).totals(t); resources != -1 {
		t.Errorf("totals = %d, want -1", resources)
	}
	if resources, _ := s.post(t, "c1", full("c1", "a")).totals(t); resources != 1 {
		t.Errorf("resources = %d, want 1", resources)
	}
	states, err := engine.Clusters(t.Context())
	if err != nil || len(states) != 1 || states[0].Hub {
		t.Errorf("Clusters() = %+v, %v, want one managed cluster", states, err)
	}
}

func TestChangesOfAnUnknownCluster(t *testing.T) {
	s := serve(t, Config{})
	if resources, edges := s.post(t, "c1", `{"addResources":[`+pod("c1", "a")+`]}`).totals(t); resources != 1 || edges != 0 {
		t.Errorf("totals = %d and %d, want 1 and 0", resources, edges)
	}
}

func TestMetricsHaveNoClusterLabels(t *testing.T) {
	s := serve(t, Config{})
	s.post(t, "c1", full("c1", "a")).totals(t)
	s.post(t, "c99", full("c99", "a")).status(t)
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "hub_apiserver_search_sync") {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "code":
					codes[label.GetValue()] = true
				case "type", "result":
				default:
					t.Errorf("metric %s has label %s, want no labels of clusters", family.GetName(), label.GetName())
				}
			}
		}
	}
	if !codes["200"] || !codes["404"] {
		t.Errorf("counted codes = %v, want 200 and 404", codes)
	}
}

// BenchmarkSync measures whole reports over HTTP.
func BenchmarkSync(b *testing.B) {
	report := fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 5000}, 1)
	all, err := fleetgen.Sync(report)
	if err != nil {
		b.Fatal(err)
	}
	node := `{"updateResources":[{"uid":"` + report.Cluster + `/x","properties":{"kind":"Node","name":"x","n":%d}}]}`
	for name, body := range map[string]func(int) string{
		"full, unchanged": func(int) string { return string(all) },
		"a heartbeat":     func(int) string { return `{"version":"2.13.0"}` },
		"one update":      func(i int) string { return fmt.Sprintf(node, i) },
	} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, Config{})
			s.fleet.set(report.Cluster)
			s.post(b, report.Cluster, string(all)).totals(b)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				s.post(b, report.Cluster, body(i)).totals(b)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
