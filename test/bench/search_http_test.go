package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	searchPath = "/apis/search.open-cluster-management.io/v1alpha1/"
	// searchUse is the ClusterRole that allows searching.
	searchUse = "open-cluster-management:search:use"
	// callers is the namespace of the ServiceAccounts that search.
	callers = "bench"
	// coldTimes is the number of callers without cached permissions that are measured one after another.
	coldTimes = 10
)

// answers are reused buffers for the responses, so that the garbage of clients does not affect the
// measurement.
var answers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// BenchmarkSearchHTTP measures the queries over HTTP, directly and through the hub's
// kube-apiserver, and reports over HTTP. Callers are ServiceAccounts with tokens.
func BenchmarkSearchHTTP(b *testing.B) {
	h := startHTTPFleet(b)
	f, o := h.Fleet, h.options
	memory := func(when string) {
		fmt.Printf("apiserver: %.0f MB resident with %d resources, %s\n", resident(b, f.Server.PID()), o.Clusters*o.PerCluster, when)
	}
	memory("just reported")
	h.measureDeltas(b)
	h.measureLists(b)
	memory("after lists and watches")
	for range b.N {
		for _, way := range []way{
			{"direct", f.Server.ServiceAccountConfig},
			{"through the hub", f.Hub.ServiceAccountConfig},
		} {
			clients := map[string]rest.Interface{}
			for _, u := range h.users {
				clients[u.name] = way.client(b, callers, strings.ToLower(u.name))
			}
			for _, api := range []struct {
				name string
				post func(*searchQuery, context.Context, rest.Interface, searchUser) error
			}{{"searches", (*searchQuery).post}, {"GraphQL", (*searchQuery).postGraphQL}} {
				fmt.Printf("over HTTP, %s, by %s:\n", way.name, api.name)
				compareWithBaseline(b, h.users, []int{1, searchClients}, func(count int, u searchUser, q *searchQuery) []time.Duration {
					ask := func(int) error { return api.post(q, b.Context(), clients[u.name], u) }
					for i := range searchClients {
						if err := ask(i); err != nil {
							b.Error(err)
							return nil
						}
					}
					ctx, cancel := context.WithTimeout(b.Context(), measured)
					defer cancel()
					return repeat(ctx, b, count, 1, ask)
				})
			}
			memory("after these queries")
			h.measureUnderUpdates(b, way.name, clients)
			h.measureColdCallers(b, way)
		}
	}
	memory("at the end")
}

// startHTTPFleet starts a hub and the server, and reports a fleet.
func startHTTPFleet(b *testing.B) *httpFleet {
	b.Helper()
	o := fleetSize(b)
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, "search")
	}
	f, err := localhub.NewFleet(localhub.FleetOptions{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	if err := f.Start(ctx); err != nil {
		b.Fatal(err)
	}
	h := &httpFleet{Fleet: f, options: o, users: searchingUsers(b, f, o), admin: adminClient(b, f)}
	fmt.Printf("apiserver: %.0f MB resident with nothing reported\n", resident(b, f.Server.PID()))
	h.sendFleet(b)
	return h
}

// way is a way to send requests to the server.
type way struct {
	name   string
	config func(ctx context.Context, namespace, name string) (*rest.Config, error)
}

func (w *way) client(b *testing.B, namespace, name string) rest.Interface {
	b.Helper()
	config, err := w.config(b.Context(), namespace, name)
	if err != nil {
		b.Fatal(err)
	}
	return restClient(b, config)
}

// httpFleet is a running server that contains a fleet.
type httpFleet struct {
	*localhub.Fleet
	options fleetgen.Options
	users   []searchUser
	admin   rest.Interface
	// pods are reports of only the Pods of some clusters, from which updates are generated.
	pods []*search.Report
}

// adminClient returns a client of an administrator that sends requests directly to the server.
func adminClient(b *testing.B, f *localhub.Fleet) rest.Interface {
	b.Helper()
	config, err := f.Server.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	return restClient(b, config)
}

func restClient(b *testing.B, config *rest.Config) rest.Interface {
	b.Helper()
	config.QPS = -1
	// The baseline was measured without compression. It would take most of the time of a page of items.
	config.DisableCompression = true
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	return client.Discovery().RESTClient()
}

// searchingUsers creates all ManagedClusters on the hub, and grants the callers their permissions.
func searchingUsers(b *testing.B, f *localhub.Fleet, o fleetgen.Options) []searchUser {
	b.Helper()
	seen := max(1, o.Clusters/5)
	users := []searchUser{{name: "admin", first: 1}, {name: "U20", first: 1}, {name: "U80", first: max(1, o.Clusters-seen)}}
	var clusters []*unstructured.Unstructured
	names := sets.New[string]()
	for i := range o.Clusters {
		names.Insert(fleetgen.ClusterName(i))
		cluster := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hubAcceptsClient": true}}}
		cluster.SetAPIVersion("cluster.open-cluster-management.io/v1")
		cluster.SetKind("ManagedCluster")
		cluster.SetName(fleetgen.ClusterName(i))
		clusters = append(clusters, cluster)
	}
	grants := allow(b, "admin", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: callers, Name: "admin"}, "")
	for _, u := range users[1:] {
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: callers, Name: strings.ToLower(u.name)}
		grants = append(grants, allow(b, strings.ToLower(u.name), searchUse, subject, fleetgen.Policy(u.first, seen, 50))...)
	}
	apply(b, f, namespacesFor(names, grants), clusters, grants)
	return users
}

// allow binds a subject to a ClusterRole in all namespaces, and to the rules of a policy.
func allow(b *testing.B, name, role string, subject rbacv1.Subject, policy string) []*unstructured.Unstructured {
	b.Helper()
	var objects []*unstructured.Unstructured
	if policy != "" {
		for _, object := range visibilitytest.Parse(b, policy) {
			if binding, is := object.(*rbacv1.RoleBinding); is {
				binding.Name += "-" + name
				binding.Subjects = []rbacv1.Subject{subject}
			}
			objects = append(objects, asUnstructured(b, object))
		}
	}
	return append(objects, asUnstructured(b, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "search-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}))
}

// namespacesFor returns the named namespaces and the namespaces of objects.
func namespacesFor(names sets.Set[string], objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, object := range objects {
		if namespace := object.GetNamespace(); namespace != "" {
			names.Insert(namespace)
		}
	}
	var namespaces []*unstructured.Unstructured
	for _, name := range sets.List(names) {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(name)
		namespaces = append(namespaces, namespace)
	}
	return namespaces
}

func apply(b *testing.B, f *localhub.Fleet, sets ...[]*unstructured.Unstructured) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	for _, objects := range sets {
		if err := f.Hub.Apply(ctx, objects...); err != nil {
			b.Fatal(err)
		}
	}
}

func asUnstructured(b *testing.B, object runtime.Object) *unstructured.Unstructured {
	b.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		b.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// sendFleet reports the whole fleet with the public protocol, directly to our server.
func (h *httpFleet) sendFleet(b *testing.B) {
	b.Helper()
	var took []time.Duration
	var whole time.Duration
	resources, before := 0, processorTime(b, h.Server.PID())
	for i := range h.options.Clusters {
		full := fleetgen.Cluster(h.options, i)
		body, err := fleetgen.Sync(full)
		if err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		response, err := h.send(b.Context(), full.Cluster, body, true)
		if err == nil && (response.TotalResources != len(full.Put) || response.TotalEdges != len(full.AddEdges)) {
			err = fmt.Errorf("totals of %s = %+v, want %d resources and %d edges", full.Cluster, response, len(full.Put), len(full.AddEdges))
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(started))
		whole += took[i]
		resources += response.TotalResources
		if i > 0 && len(h.pods) < changing {
			h.pods = append(h.pods, onlyPods(full))
		}
	}
	b.ReportMetric(float64(resources)/whole.Seconds(), "http-ingest-resources/s")
	fmt.Printf("%d resources over HTTP: %.0f resources/s (baseline 8,600-9,900)\n", resources, float64(resources)/whole.Seconds())
	worked := processorTime(b, h.Server.PID()) - before
	b.ReportMetric(float64(resources)/worked.Seconds(), "http-ingest-resources/cpu-s")
	fmt.Printf("  the server worked %.1f s for them: %.0f resources for each second of a core\n", worked.Seconds(), float64(resources)/worked.Seconds())
	report(b, "full report over HTTP", "http-full", took)
}

// processorTime returns the CPU time of a process on all cores.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// After the name in parentheses, user and system time are the 12th and the 13th field, in hundredths of a second.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// sync sends a report.
func (h *httpFleet) sync(ctx context.Context, report *search.Report, full bool) (*inventory.Response, error) {
	body, err := fleetgen.Sync(report)
	if err != nil {
		return nil, err
	}
	return h.send(ctx, report.Cluster, body, full)
}

func (h *httpFleet) send(ctx context.Context, cluster string, body []byte, full bool) (*inventory.Response, error) {
	request := h.admin.Post().AbsPath(searchPath+"namespaces", cluster, "inventories", cluster, "sync").
		SetHeader("Content-Type", "application/json").Body(body)
	if full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	answer, err := request.DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("report of %s: %w: %.500s", cluster, err, answer)
	}
	response := &inventory.Response{}
	if err := json.Unmarshal(answer, response); err != nil {
		return nil, fmt.Errorf("report of %s: %w: %.500s", cluster, err, answer)
	}
	return response, nil
}

// measureUnderUpdates measures all queries with all clients while the clusters send updates.
func (h *httpFleet) measureUnderUpdates(b *testing.B, way string, clients map[string]rest.Interface) {
	for _, u := range h.users {
		ctx, cancel := context.WithTimeout(b.Context(), underUpdates)
		updates := make(chan int, 1)
		go func() {
			updates <- reportUpdates(ctx, b, h.pods, overHTTP, func(update *search.Report) error {
				_, err := h.sync(b.Context(), update, false)
				return err
			})
		}()
		took := repeat(ctx, b, searchClients, len(searchQueries), func(i int) error {
			return searchQueries[i].post(b.Context(), clients[u.name], u)
		})
		cancel()
		count := <-updates
		report(b, fmt.Sprintf("all queries of %s, %s, %d clients, %.0f updates/s coming in", u.name, way, searchClients,
			float64(count)/underUpdates.Seconds()), "http-updates-"+strings.ReplaceAll(way, " ", "-")+"-"+u.name, took)
	}
}

// measureColdCallers measures the first searches of callers without cached permissions, with
// the requests that the server sends to the hub for them.
func (h *httpFleet) measureColdCallers(b *testing.B, w way) {
	for _, namespaces := range []int{500, 2000} {
		group := fmt.Sprintf("cold-%d", namespaces)
		larger := h.options
		larger.HubNamespaces, larger.PerCluster = namespaces, max(larger.PerCluster, 5000)
		if _, err := h.sync(b.Context(), fleetgen.Cluster(larger, 0), true); err != nil {
			b.Fatal(err)
		}
		subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + group}
		grants := allow(b, group, searchUse, subject, fleetgen.Policy(1, max(1, h.options.Clusters/5), namespaces-namespaces/10))
		apply(b, h.Fleet, namespacesFor(sets.New(group), grants), grants)
		first := func(name string) time.Duration {
			client := w.client(b, group, name)
			started := time.Now()
			if err := queryNamed("5").post(b.Context(), client, searchUser{name: name, first: 1}); err != nil {
				b.Error(err)
			}
			return time.Since(started)
		}
		// After this search, connections exist and the server has the permissions.
		first("warm-" + strings.ReplaceAll(w.name, " ", "-"))
		var took []time.Duration
		asked := h.requestsToHub(b)
		for i := range coldTimes {
			took = append(took, first(fmt.Sprintf("cold-%d-%d", len(w.name), i)))
		}
		calls := float64(h.requestsToHub(b)-asked) / coldTimes
		report(b, fmt.Sprintf("first search of a cold caller bound in %d namespaces, %s, with its TLS handshake; %.1f requests to the hub each", namespaces, w.name, calls),
			fmt.Sprintf("http-cold-%d", namespaces), took)

		hot := h.users[1]
		client := w.client(b, callers, strings.ToLower(hot.name))
		ask := func(int) error { return queryNamed("5").post(b.Context(), client, hot) }
		report(b, "  a hot caller alone", "http-hot-alone", repeat(within(b, time.Second), b, 1, 1, ask))
		cold := make([]rest.Interface, searchClients)
		for i := range cold {
			cold[i] = w.client(b, group, fmt.Sprintf("beside-%d-%d", len(w.name), i))
		}
		ctx := within(b, time.Second)
		var asking sync.WaitGroup
		for _, client := range cold {
			asking.Go(func() {
				if err := queryNamed("5").post(b.Context(), client, searchUser{first: 1}); err != nil {
					b.Error(err)
				}
			})
		}
		beside := repeat(ctx, b, 1, 1, ask)
		asking.Wait()
		report(b, "  a hot caller while 8 cold ones come (baseline 12,200 ms once)", "http-hot-beside-cold", beside)
	}
}

// requestsToHub returns the number of requests that the server has sent to the hub's
// kube-apiserver for callers.
func (h *httpFleet) requestsToHub(b *testing.B) int {
	b.Helper()
	content, err := h.admin.Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "} "); found && strings.HasPrefix(name, "rest_client_requests_total{") && strings.Contains(name, `method="POST"`) {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += number
		}
	}
	return int(total)
}

// post sends the query once over HTTP.
func (q *searchQuery) post(ctx context.Context, client rest.Interface, u searchUser) error {
	terms := searchv1alpha1.SearchTerms{Query: q.textFor(u)}
	var question any
	resource := "searches"
	meta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: searchv1alpha1.SchemeGroupVersion.String(), Kind: kind}
	}
	switch {
	case q.schema:
		resource = "searchschemas"
		question = &searchv1alpha1.SearchSchema{TypeMeta: meta("SearchSchema"), Spec: terms}
	case q.complete != "":
		resource = "searchcompletions"
		question = &searchv1alpha1.SearchCompletion{TypeMeta: meta("SearchCompletion"), Spec: searchv1alpha1.SearchCompletionSpec{
			SearchTerms: terms, Property: q.complete, Limit: ptr.To[int32](pageSize),
		}}
	default:
		question = &searchv1alpha1.Search{TypeMeta: meta("Search"), Spec: searchv1alpha1.SearchSpec{SearchRequest: q.requestFor(terms)}}
	}
	return q.send(ctx, client, u, resource, question, `"status"`)
}

// postGraphQL sends the query once as a public client does.
func (q *searchQuery) postGraphQL(ctx context.Context, client rest.Interface, u searchUser) error {
	input := map[string]any{"limit": q.request.Limit, "offset": q.request.Offset}
	var keywords []string
	var filters []map[string]any
	for _, word := range strings.Fields(q.textFor(u)) {
		at := strings.IndexAny(word, ":!")
		if at < 0 {
			keywords = append(keywords, word)
			continue
		}
		filters = append(filters, map[string]any{"property": word[:at], "values": []string{strings.TrimPrefix(word[at:], ":")}})
	}
	input["keywords"], input["filters"] = keywords, filters
	for _, order := range q.request.OrderBy {
		input["orderBy"] = orderText(order)
	}
	text, variables := "", map[string]any{"input": []any{input}}
	switch {
	case q.schema:
		text, variables = `query { searchSchema }`, nil
	case q.complete != "":
		text = `query ($property: String!, $limit: Int) { searchComplete(property: $property, limit: $limit) }`
		variables = map[string]any{"property": q.complete, "limit": pageSize}
	case q.request.RelatedItems:
		text = `query ($input: [SearchInput]) { search(input: $input) { related { kind count items } } }`
	case q.request.Related:
		text = `query ($input: [SearchInput]) { search(input: $input) { count items related { kind count } } }`
	case q.request.Items:
		text = `query ($input: [SearchInput]) { search(input: $input) { items } }`
	default:
		text = `query ($input: [SearchInput]) { search(input: $input) { count } }`
	}
	return q.send(ctx, client, u, "graphql", map[string]any{"query": text, "variables": variables}, `{"data":`)
}

// send sends a question and checks that the response contains a text.
func (q *searchQuery) send(ctx context.Context, client rest.Interface, u searchUser, resource string, question any, want string) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("query %s: %w", q.number, err)
	}
	stream, err := client.Post().AbsPath(searchPath+resource).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body).Stream(ctx)
	if err != nil {
		return fmt.Errorf("query %s of %s: %w", q.number, u.name, err)
	}
	answer, ok := answers.Get().(*bytes.Buffer)
	if !ok {
		return errors.New("not a buffer")
	}
	defer answers.Put(answer)
	answer.Reset()
	_, err = answer.ReadFrom(stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		return fmt.Errorf("query %s of %s: %w", q.number, u.name, err)
	}
	if !bytes.Contains(answer.Bytes(), []byte(want)) {
		return fmt.Errorf("query %s of %s: response = %.300s, want one with %s", q.number, u.name, answer, want)
	}
	return nil
}

func (q *searchQuery) requestFor(terms searchv1alpha1.SearchTerms) searchv1alpha1.SearchRequest {
	request := searchv1alpha1.SearchRequest{SearchTerms: terms, Output: searchv1alpha1.OutputCount}
	if q.request.Items {
		request.Output = searchv1alpha1.OutputItems
		request.Limit, request.Offset = ptr.To(int32(q.request.Limit)), int32(q.request.Offset)
	}
	if q.request.Related {
		request.Output = searchv1alpha1.OutputRelated
		request.Limit, request.RelatedLimit = ptr.To(int32(q.request.Limit)), ptr.To(int32(q.request.RelatedLimit))
	}
	for _, order := range q.request.OrderBy {
		request.OrderBy = append(request.OrderBy, orderText(order))
	}
	return request
}

func orderText(order search.Order) string {
	if order.Descending {
		return order.Property + " desc"
	}
	return order.Property
}
