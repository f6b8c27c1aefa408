package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// smallCluster is the number of resources that each cluster reports at first.
	smallCluster = 50
	// reporters is the number of clusters that send full reports concurrently.
	reporters = 3
	// sizingPatience bounds the wait for one cluster, or for a restarted server.
	sizingPatience = 10 * time.Minute
)

// fleetSizing is a size of a fleet. Clusters report smallCluster resources, unless the fleet has more.
type fleetSizing struct{ clusters, resources int }

// fleetSizings returns the measured sizes that the environment selects: of each hub, in the order in which it grows.
func fleetSizings(b *testing.B) [][]fleetSizing {
	b.Helper()
	if os.Getenv("SIZING_CLUSTERS") != "" {
		clusters := number(b, "SIZING_CLUSTERS", 1)
		sizes := []fleetSizing{{clusters: clusters}}
		if os.Getenv("SIZING_RESOURCES") != "" {
			sizes = append(sizes, fleetSizing{clusters, number(b, "SIZING_RESOURCES", 1)})
		}
		return [][]fleetSizing{sizes}
	}
	switch size := os.Getenv("SIZING"); size {
	case "":
		return [][]fleetSizing{{{100, 0}, {100, 100_000}, {1_000, 0}, {1_000, 1_000_000}}}
	case "large":
		return [][]fleetSizing{{{5_000, 0}}, {{500, 0}, {500, 10_000_000}}}
	default:
		b.Fatalf("SIZING = %q, want large or nothing", size)
		return nil
	}
}

// sizingRow is a row of the table.
type sizingRow struct {
	clusters, resources int
	// steady and peak are the resident memory in MiB, and heap is the memory of objects in use or not yet collected.
	steady, peak, heap float64
	// loaded is the CPU time since the previous row, until all clusters and resources are stored.
	loaded time.Duration
	// cores is the CPU time for each second of steady state, and hubCores that of kube-apiserver and its etcd.
	cores, hubCores float64
	// delivered are the times from before a request that creates a ClusterPermission until the agent has received the
	// ManifestWork.
	delivered []time.Duration
	// etcd and search are the sizes of the files in MiB.
	etcd, search float64
	// ready is the time from a start of the server until it is ready and searches are complete, and started is its CPU
	// time until then.
	ready, started time.Duration
}

// BenchmarkSizing measures the resources that the server needs for fleets: a separate process with the embedded
// etcd, the embedded search engine, and the environment of the manifests, behind a hub. Clusters have simulated
// agents. docs/design/sizing.md contains the figures.
func BenchmarkSizing(b *testing.B) {
	var rows []sizingRow
	for _, sizes := range fleetSizings(b) {
		b.Run(fmt.Sprintf("clusters=%d", sizes[len(sizes)-1].clusters), func(b *testing.B) {
			measureSizings(b, sizes, func(row sizingRow) { rows = append(rows, row) })
		})
	}
	fmt.Println("| clusters | resources | memory, steady | memory, peak | Go heap | CPU to load | CPU, steady | CPU of the hub, steady | delivery p50 / p99 | etcd | search | restart | CPU to restart |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, row := range rows {
		fmt.Printf("| %d | %d | %.0f MiB | %.0f MiB | %.0f MiB | %.0f s | %.2f cores | %.2f cores | %s | %.0f MiB | %.0f MiB | %.0f s | %.0f s |\n", row.clusters, row.resources,
			row.steady, row.peak, row.heap, row.loaded.Seconds(), row.cores, row.hubCores, percentiles(row.delivered), row.etcd, row.search, row.ready.Seconds(), row.started.Seconds())
	}
}

// measureSizings measures a server without clusters, and then with growing fleets.
func measureSizings(b *testing.B, sizes []fleetSizing, add func(sizingRow)) {
	s := startSizing(b)
	add(s.measure(b, 0))
	for _, size := range sizes {
		before := processorTime(b, s.Server.PID())
		joined := len(s.agents)
		s.agents = append(s.agents, make([]*simulatedAgent, size.clusters-joined)...)
		s.parallel(b, registrars, size.clusters-joined, func(ctx context.Context, i int) (err error) {
			s.agents[joined+i], err = s.addAgent(ctx, fleetgen.ClusterName(joined+i+1))
			return err
		})
		s.reportFull(b, s.agents[joined:], smallCluster)
		if size.resources > 0 {
			s.reportFull(b, s.agents, size.resources/size.clusters)
		}
		row := s.measure(b, processorTime(b, s.Server.PID())-before)
		s.restart(b, &row)
		add(row)
	}
}

// sizingHub is a hub with the measured server.
type sizingHub struct {
	*registrationHub
	// running is the context of the agents, and goroutines are those of the agents.
	running    context.Context
	goroutines *errgroup.Group
	agents     []*simulatedAgent
	memory     *memorySampler
	// deliveries contains the measured ClusterPermissions that no agent has received yet.
	deliveries deliveries
	// direct is a client of an administrator that sends requests directly to the server.
	direct *versioned.Clientset
	// period is the time until a steady state, and the duration of the measurement.
	period time.Duration
}

func startSizing(b *testing.B) *sizingHub {
	b.Helper()
	s := &sizingHub{
		registrationHub: startRegistrationHub(b, "sizing", serverEnvironment(b)),
		period:          time.Duration(number(b, "SIZING_SECONDS", 120)) * time.Second,
	}
	config, err := s.Server.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	s.direct, _ = clientsOf(b, config)
	s.memory = sampleMemory(s.Server.PID())
	var stop context.CancelFunc
	s.running, stop = context.WithCancel(context.Background())
	s.goroutines = &errgroup.Group{}
	b.Cleanup(func() {
		stop()
		s.memory.stop()
		if err := s.goroutines.Wait(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// serverEnvironment returns the environment variables of the manifests that have a constant value.
func serverEnvironment(b *testing.B) []string {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(localhub.Root(), "artifacts", "deploy", "base", "deployment.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	if err := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(deployment); err != nil {
		b.Fatal(err)
	}
	var env []string
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		// GOMEMLIMIT depends on the limit, which follows from this measurement.
		if variable.ValueFrom == nil && !strings.Contains(variable.Value, "$(") {
			env = append(env, variable.Name+"="+variable.Value)
		}
	}
	return env
}

// parallel calls do for the numbers from 0 to count-1, some at a time.
func (s *sizingHub) parallel(b *testing.B, limit, count int, do func(ctx context.Context, i int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(s.running)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, sizingPatience)
			defer cancel()
			return do(ctx, i)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// reportFull sends a full report with a number of resources of each cluster, as its agent.
func (s *sizingHub) reportFull(b *testing.B, agents []*simulatedAgent, resources int) {
	b.Helper()
	s.parallel(b, reporters, len(agents), func(ctx context.Context, i int) error {
		fleet := fleetgen.Options{Clusters: len(s.agents) + 1, PerCluster: resources}
		return agents[i].reportFull(ctx, fleetgen.Cluster(fleet, slices.Index(s.agents, agents[i])+1))
	})
}

// measure waits until the state of the server is steady, and measures it.
func (s *sizingHub) measure(b *testing.B, loaded time.Duration) sizingRow {
	b.Helper()
	row := sizingRow{clusters: len(s.agents), loaded: loaded}
	for _, a := range s.agents {
		row.resources += a.resources
	}
	s.wait(b, s.period)
	_, row.peak = s.memory.take()
	before, hubBefore := processorTime(b, s.Server.PID()), s.hubTime(b)
	s.wait(b, s.period)
	row.cores = (processorTime(b, s.Server.PID()) - before).Seconds() / s.period.Seconds()
	row.hubCores = (s.hubTime(b) - hubBefore).Seconds() / s.period.Seconds()
	var peak float64
	row.steady, peak = s.memory.take()
	fmt.Printf("%d clusters, %d resources: peak %.0f MiB while they were added, mean %.0f MiB afterwards, %.2f cores, hub %.2f cores\n", row.clusters, row.resources, row.peak, row.steady, row.cores, row.hubCores)
	row.peak = max(row.peak, peak)
	row.heap = s.metric(b, "go_memstats_heap_alloc_bytes") / (1 << 20)
	data := filepath.Join(s.dir, "apiserver", "etcd")
	row.search = directorySize(b, filepath.Join(data, "search"))
	row.etcd = directorySize(b, data) - row.search
	row.delivered = s.deliver(b)
	return row
}

// hubTime returns the CPU time of kube-apiserver and its etcd.
func (s *sizingHub) hubTime(b *testing.B) time.Duration {
	b.Helper()
	return processorTime(b, s.Hub.APIServer.PID()) + processorTime(b, s.Hub.Etcd.PID())
}

// restart restarts the server, while all agents connect again.
func (s *sizingHub) restart(b *testing.B, row *sizingRow) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), sizingPatience)
	defer cancel()
	// Searches do not find Secrets of clusters.
	found, err := s.found(ctx)
	if err != nil {
		b.Fatal(err)
	}
	s.memory.stop()
	if err := s.Server.Stop(ctx); err != nil {
		b.Fatal(err)
	}
	started := time.Now()
	if err := s.Server.Launch(); err != nil {
		b.Fatal(err)
	}
	s.memory = sampleMemory(s.Server.PID())
	if err := s.Server.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, err := s.found(ctx)
		return err == nil && now >= found, nil
	})
	if err != nil {
		b.Fatalf("waiting until searches find %d resources: %v", found, err)
	}
	row.ready, row.started = time.Since(started), processorTime(b, s.Server.PID())
	s.wait(b, s.period)
	mean, peak := s.memory.take()
	worked := processorTime(b, s.Server.PID())
	fmt.Printf("  restarted: searches complete after %.1f s and %.1f s of CPU, peak %.0f MiB, mean %.0f MiB, %.1f s of CPU in the first %.0f s\n",
		row.ready.Seconds(), row.started.Seconds(), peak, mean, worked.Seconds(), time.Since(started).Seconds())
	row.peak = max(row.peak, peak)
}

// found returns the number of resources that a search for everything finds.
func (s *sizingHub) found(ctx context.Context) (int64, error) {
	everything := &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{Output: searchv1alpha1.OutputCount}}}
	answer, err := s.direct.SearchV1alpha1().Searches().Create(ctx, everything, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	return answer.Status.Count, nil
}

// wait lets the fleet run for some time.
func (s *sizingHub) wait(b *testing.B, period time.Duration) {
	b.Helper()
	select {
	case <-time.After(period):
	case <-s.Server.Exited():
		b.Fatal(s.Server.Failure())
	}
}

// metric returns the value of a metric of the server without labels.
func (s *sizingHub) metric(b *testing.B, name string) float64 {
	b.Helper()
	content, err := s.direct.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				b.Fatal(err)
			}
			return value
		}
	}
	b.Fatalf("the server has no metric %s", name)
	return 0
}
