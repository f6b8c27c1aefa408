package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	// comparedGroup is the group of the CustomResourceDefinition, because the hub forwards the group of OCM to the server.
	comparedGroup = "work.crd.test"
	// comparedNamespaces is the number of namespaces that contain the compared objects.
	comparedNamespaces = 20
	// comparedLabel selects one of ten objects.
	comparedLabel = "tenth"
	// comparedLists is the number of lists of each kind, and comparedEvents the number of events of each watch.
	comparedLists, comparedEvents = 30, 60
)

// api is a way to ManifestWorks.
type api struct {
	name   string
	client *rest.RESTClient
	group  string
}

// comparison is a hub that serves ManifestWorks by a CustomResourceDefinition and by the server.
type comparison struct {
	*registrationHub
	crd, direct, aggregated api
}

func startComparison(b *testing.B) *comparison {
	b.Helper()
	c := &comparison{registrationHub: startRegistrationHub(b, "crds", serverEnvironment(b), "--namespace-quota-objects=manifestworks=100000", "--namespace-quota-bytes=manifestworks=1Gi")}
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	definitions := framework.OCMDefinitions(b)
	found := slices.IndexFunc(definitions, func(definition *unstructured.Unstructured) bool {
		return definition.GetName() == "manifestworks."+workv1.GroupName
	})
	definition := definitions[found]
	definition.SetName("manifestworks." + comparedGroup)
	if err := unstructured.SetNestedField(definition.Object, comparedGroup, "spec", "group"); err != nil {
		b.Fatal(err)
	}
	// An unprotected group would need the annotation of its approval.
	if err := c.Hub.Apply(ctx, definition); err != nil {
		b.Fatal(err)
	}
	for i := range comparedNamespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: comparedNamespace(i)}}
		if _, err := c.hub.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	direct, err := c.Server.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	c.crd = newAPI(b, "CustomResourceDefinition", c.Hub.AdminConfig(), comparedGroup)
	c.direct = newAPI(b, "server, directly", direct, workv1.GroupName)
	c.aggregated = newAPI(b, "server, through the hub", c.Hub.AdminConfig(), workv1.GroupName)
	if err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.crd.list(ctx, "", "")
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		b.Fatal(err)
	}
	return c
}

func newAPI(b *testing.B, name string, config *rest.Config, group string) api {
	b.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.GroupVersion = &schema.GroupVersion{Group: group, Version: workv1.SchemeGroupVersion.Version}
	config.APIPath = "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	return api{name: name, client: client, group: group}
}

func comparedNamespace(i int) string { return fmt.Sprintf("compared-%d", i%comparedNamespaces) }

func comparedName(prefix string, i int) string { return fmt.Sprintf("%s-%05d", prefix, i) }

// comparedWork returns a ManifestWork in JSON, with two manifests, of about 1.5 KB.
func comparedWork(a api, prefix string, i int) []byte {
	labels := map[string]any{"app": "web", "team": fmt.Sprintf("team-%d", i%50)}
	if i%10 == 0 {
		labels[comparedLabel] = "true"
	}
	deployment := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "default", "name": "web", "labels": map[string]any{"app": "web"}},
		"spec": map[string]any{
			"replicas": 3, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "web", "image": "registry.example.com/web:1.0.0", "ports": []any{map[string]any{"containerPort": 8080}},
					"env":       []any{map[string]any{"name": "LEVEL", "value": "info"}, map[string]any{"name": "NUMBER", "value": fmt.Sprint(i)}},
					"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}, "limits": map[string]any{"memory": "256Mi"}},
				}}},
			},
		},
	}
	settings := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "web"},
		"data": map[string]any{"config": strings.Repeat("a line of a configuration file\n", 10)},
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": a.group + "/v1", "kind": "ManifestWork",
		"metadata": map[string]any{"namespace": comparedNamespace(i), "name": comparedName(prefix, i), "labels": labels},
		"spec":     map[string]any{"workload": map[string]any{"manifests": []any{deployment, settings}}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

func (a api) create(ctx context.Context, prefix string, i int) error {
	_, err := a.client.Post().Namespace(comparedNamespace(i)).Resource("manifestworks").Body(comparedWork(a, prefix, i)).
		SetHeader("Content-Type", "application/json").DoRaw(ctx)
	return err
}

func (a api) get(ctx context.Context, prefix string, i int) error {
	_, err := a.client.Get().Namespace(comparedNamespace(i)).Resource("manifestworks").Name(comparedName(prefix, i)).DoRaw(ctx)
	return err
}

func (a api) patch(ctx context.Context, prefix string, i, value int) error {
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"mark":"%d."}}}`, value)
	_, err := a.client.Patch(types.MergePatchType).Namespace(comparedNamespace(i)).Resource("manifestworks").Name(comparedName(prefix, i)).Body(body).DoRaw(ctx)
	return err
}

func (a api) delete(ctx context.Context, prefix string, i int) error {
	_, err := a.client.Delete().Namespace(comparedNamespace(i)).Resource("manifestworks").Name(comparedName(prefix, i)).DoRaw(ctx)
	return err
}

func (a api) list(ctx context.Context, namespace, selector string) ([]byte, error) {
	return a.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource("manifestworks").Param("labelSelector", selector).DoRaw(ctx)
}

// listPages reads all objects in pages of 500.
func (a api) listPages(ctx context.Context) error {
	token := ""
	for {
		content, err := a.client.Get().Resource("manifestworks").Param("limit", "500").Param("continue", token).DoRaw(ctx)
		if err != nil {
			return err
		}
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(content, &list); err != nil {
			return err
		}
		if token = list.Metadata.Continue; token == "" {
			return nil
		}
	}
}

// figures are the durations of requests by operation and API.
type figures struct {
	operations []string
	durations  map[string]map[string][]time.Duration
}

// compare calls do for each number and each API, one after another, and records the durations. The order of the APIs changes
// with each number, so that they share each disturbance.
func (f *figures) compare(b *testing.B, operation string, count int, apis []api, do func(ctx context.Context, a api, i int) error) {
	b.Helper()
	for i := range count {
		for j := range apis {
			a := apis[(i+j)%len(apis)]
			started := time.Now()
			if err := do(b.Context(), a, i); err != nil {
				b.Fatalf("%s, %s: %v", operation, a.name, err)
			}
			f.add(operation, a, time.Since(started))
		}
	}
}

func (f *figures) add(operation string, a api, durations ...time.Duration) {
	if f.durations == nil {
		f.durations = map[string]map[string][]time.Duration{}
	}
	if f.durations[operation] == nil {
		f.operations = append(f.operations, operation)
		f.durations[operation] = map[string][]time.Duration{}
	}
	f.durations[operation][a.name] = append(f.durations[operation][a.name], durations...)
}

// table returns the figures in Markdown, with their ratio to those of the first API.
func (f *figures) table(apis ...api) string {
	out := &strings.Builder{}
	fmt.Fprint(out, "| p50 / p99 in ms |")
	for i, a := range apis {
		fmt.Fprintf(out, " %s |", a.name)
		if i > 0 {
			fmt.Fprint(out, " p50, relative |")
		}
	}
	fmt.Fprint(out, "\n|---|", strings.Repeat("---|", 2*len(apis)-1), "\n")
	for _, operation := range f.operations {
		fmt.Fprintf(out, "| %s |", operation)
		base := time.Duration(0)
		for i, a := range apis {
			sorted := slices.Sorted(slices.Values(f.durations[operation][a.name]))
			if len(sorted) == 0 {
				fmt.Fprint(out, " |")
				if i > 0 {
					fmt.Fprint(out, " |")
				}
				continue
			}
			p50, p99 := percentile(sorted, 50), percentile(sorted, 99)
			fmt.Fprintf(out, " %.2f / %.2f |", p50.Seconds()*1000, p99.Seconds()*1000)
			if i == 0 {
				base = p50
			} else {
				fmt.Fprintf(out, " %.2f |", p50.Seconds()/base.Seconds())
			}
		}
		fmt.Fprintln(out)
	}
	return out.String()
}

// BenchmarkCRDs compares requests for ManifestWorks of the server with those for the same kind as a CustomResourceDefinition
// on the same hub, in the same run. Requests are sent by one client, one after another.
func BenchmarkCRDs(b *testing.B) {
	c := startComparison(b)
	count := number(b, "BENCH_OBJECTS", 2000)
	for range b.N {
		f := &figures{}
		c.compareRequests(b, f, count)
		for _, watchers := range []int{50, 500} {
			c.compareWatches(b, f, fmt.Sprintf("watch delivery, %d watchers", watchers), watchers)
		}
		c.compareDeletes(b, f, count)
		table := f.table(c.crd, c.direct, c.aggregated)
		fmt.Print(table)
		publish(b, "crds", fmt.Sprintf("%d ManifestWorks of 1.5 KB in %d namespaces:\n\n%s", count, comparedNamespaces, table))
	}
}

func (c *comparison) compareRequests(b *testing.B, f *figures, count int) {
	b.Helper()
	all := []api{c.crd, c.direct, c.aggregated}
	f.compare(b, "create", count, all, func(ctx context.Context, a api, i int) error { return a.create(ctx, c.prefix(a), i) })
	// Lists find the same number of objects in both.
	c.each(b, count, func(ctx context.Context, i int) error { return c.aggregated.delete(ctx, c.prefix(c.aggregated), i) })
	f.compare(b, "get", count, all, func(ctx context.Context, a api, i int) error { return a.get(ctx, "d", i) })
	f.compare(b, "patch", count, all, func(ctx context.Context, a api, i int) error {
		return a.patch(ctx, "d", i, len(a.name)) // another value for each way
	})
	f.compare(b, "list all", comparedLists, all, func(ctx context.Context, a api, _ int) error {
		_, err := a.list(ctx, "", "")
		return err
	})
	f.compare(b, "list a namespace", 5*comparedLists, all, func(ctx context.Context, a api, i int) error {
		_, err := a.list(ctx, comparedNamespace(i), "")
		return err
	})
	f.compare(b, "list by label", 5*comparedLists, all, func(ctx context.Context, a api, i int) error {
		_, err := a.list(ctx, "", comparedLabel+"=true")
		return err
	})
	f.compare(b, "list all in pages of 500", comparedLists, all, func(ctx context.Context, a api, _ int) error { return a.listPages(ctx) })
}

// prefix returns the prefix of the names of the objects that an API creates and deletes. The objects of the server are the
// same in both ways to it.
func (c *comparison) prefix(a api) string {
	if a.name == c.aggregated.name {
		return "h"
	}
	return "d"
}

// each calls do for each number without a measurement.
func (c *comparison) each(b *testing.B, count int, do func(ctx context.Context, i int) error) {
	b.Helper()
	for i := range count {
		if err := do(b.Context(), i); err != nil {
			b.Fatal(err)
		}
	}
}

func (c *comparison) compareDeletes(b *testing.B, f *figures, count int) {
	b.Helper()
	c.each(b, count, func(ctx context.Context, i int) error { return c.aggregated.create(ctx, c.prefix(c.aggregated), i) })
	f.compare(b, "delete", count, []api{c.crd, c.direct, c.aggregated}, func(ctx context.Context, a api, i int) error {
		return a.delete(ctx, c.prefix(a), i)
	})
}

// compareWatches measures the time from before a write until each watcher has received its event. Each API has a namespace
// of its own, so that its events reach no watcher of another one.
func (c *comparison) compareWatches(b *testing.B, f *figures, operation string, watchers int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	apis := []api{c.crd, c.direct, c.aggregated}
	var streams sync.WaitGroup
	defer streams.Wait()
	running, stop := context.WithCancel(ctx)
	defer stop()
	received := map[string]chan time.Time{}
	for i, a := range apis {
		events := make(chan time.Time, watchers)
		received[a.name] = events
		a.watch(running, b, comparedNamespace(i), watchers, &streams, events)
	}
	for i := range comparedEvents {
		for j := range apis {
			n := (i + j) % len(apis)
			a := apis[n]
			started := time.Now()
			// Each value differs from those of other calls.
			if err := a.patch(ctx, "d", n, watchers*comparedEvents+i); err != nil {
				b.Fatal(err)
			}
			for range watchers {
				select {
				case at := <-received[a.name]:
					f.add(operation, a, at.Sub(started))
				case <-ctx.Done():
					b.Fatalf("%s: waiting for %d watchers: %v", a.name, watchers, ctx.Err())
				}
			}
		}
	}
}

// watch starts watches of a namespace, which send the time of each event.
func (a api) watch(ctx context.Context, b *testing.B, namespace string, watchers int, streams *sync.WaitGroup, events chan<- time.Time) {
	b.Helper()
	content, err := a.list(ctx, namespace, "")
	if err != nil {
		b.Fatal(err)
	}
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(content, &list); err != nil {
		b.Fatal(err)
	}
	for range watchers {
		stream, err := a.client.Get().Namespace(namespace).Resource("manifestworks").
			Param("watch", "true").Param("resourceVersion", list.Metadata.ResourceVersion).Stream(ctx)
		if err != nil {
			b.Fatal(err)
		}
		streams.Go(func() {
			defer func() { _ = stream.Close() }()
			// Each line is an event. Decoding it would measure this client.
			lines := bufio.NewReaderSize(stream, 64<<10)
			for {
				line, err := lines.ReadSlice('\n')
				if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
					return
				}
				if bytes.HasPrefix(line, []byte(`{"type":"MODIFIED"`)) {
					events <- time.Now()
				}
			}
		})
	}
}

// footprint is what stored objects need: memory of processes in MiB, and bytes in etcd.
type footprint struct {
	memory float64
	disk   int64
}

// BenchmarkCRDsMemory compares memory and disk for each ManifestWork, after a restart.
func BenchmarkCRDsMemory(b *testing.B) {
	c := startComparison(b)
	count := number(b, "BENCH_OBJECTS", 10000)
	hubEtcd, ownEtcd := c.Hub.Etcd.Endpoint, "unix://"+filepath.Join(c.dir, "apiserver", "etcd", "client")
	for range b.N {
		measure := func() (crd, own footprint) {
			c.restartAll(b)
			crd = footprint{memory: resident(b, c.Hub.APIServer.PID()) + resident(b, c.Hub.Etcd.PID()), disk: storedBytes(b, hubEtcd)}
			return crd, footprint{memory: resident(b, c.Server.PID()), disk: storedBytes(b, ownEtcd)}
		}
		crdBefore, ownBefore := measure()
		c.createBoth(b, count)
		crd, own := measure()
		each := func(after, before footprint) string {
			return fmt.Sprintf("%.1f KiB | %.1f KiB |", (after.memory-before.memory)*1024/float64(count), float64(after.disk-before.disk)/1024/float64(count))
		}
		table := "| for each object | memory | disk |\n|---|---|---|\n" +
			"| kube-apiserver and its etcd, CustomResourceDefinition | " + each(crd, crdBefore) + "\n" +
			"| server with its embedded etcd | " + each(own, ownBefore) + "\n"
		fmt.Print(table)
		publish(b, "crds-memory", fmt.Sprintf("%d ManifestWorks of 1.5 KB:\n\n%s", count, table))
	}
}

// BenchmarkCRDsMany compares lists of many ManifestWorks in pages, and measures the memory and the restart of the server
// that stores them.
func BenchmarkCRDsMany(b *testing.B) {
	c := startComparison(b)
	count := number(b, "BENCH_OBJECTS", 50000)
	for range b.N {
		c.createBoth(b, count)
		f := &figures{}
		f.compare(b, "list all in pages of 500", comparedLists, []api{c.crd, c.direct, c.aggregated}, func(ctx context.Context, a api, _ int) error {
			return a.listPages(ctx)
		})
		loaded := resident(b, c.Server.PID())
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		if err := c.Server.Stop(ctx); err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		if err := c.Server.Start(ctx); err != nil {
			b.Fatal(err)
		}
		ready := time.Since(started)
		err := c.direct.listPages(ctx)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		table := f.table(c.crd, c.direct, c.aggregated) + fmt.Sprintf(`
| server with its embedded etcd | |
|---|---|
| memory after creates and lists | %.0f MiB |
| time from its start until it is ready | %.1f s |
| memory after the restart and a list of all | %.0f MiB |
`, loaded, ready.Seconds(), resident(b, c.Server.PID()))
		fmt.Print(table)
		publish(b, "crds-many", fmt.Sprintf("%d ManifestWorks of 1.5 KB in %d namespaces:\n\n%s", count, comparedNamespaces, table))
	}
}

// createBoth creates objects by the CustomResourceDefinition and in the server.
func (c *comparison) createBoth(b *testing.B, count int) {
	b.Helper()
	for _, a := range []api{c.crd, c.direct} {
		group, ctx := errgroup.WithContext(b.Context())
		group.SetLimit(creators)
		for i := range count {
			group.Go(func() error { return a.create(ctx, "m", i) })
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// restartAll restarts the hub and the server, and lists the objects of both, so that all caches are filled.
func (c *comparison) restartAll(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for _, step := range []func(context.Context) error{c.Stop, c.Start} {
		if err := step(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for _, a := range []api{c.crd, c.direct} {
		for range 3 {
			if err := a.listPages(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	// The runtime returns memory after some time.
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
	}
}

// storedBytes returns the bytes that etcd uses of its database.
func storedBytes(b *testing.B, endpoint string) int64 {
	b.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		b.Fatal(err)
	}
	return status.DbSizeInUse
}
