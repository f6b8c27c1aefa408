package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/access/feed"
	agent "open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/accesstest"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// accessChanges is the number of changes whose latency is measured.
const accessChanges = 100

// accessCluster starts a cluster and returns its client.
func accessCluster(b *testing.B) (*localhub.Cluster, kubernetes.Interface) {
	b.Helper()
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "managed", Dir: filepath.Join(b.TempDir(), "cluster"), NoFsync: true})
	if err != nil {
		b.Fatal(err)
	}
	framework.StopLater(b, cluster.Stop)
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := cluster.Start(ctx); err != nil {
		b.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	return cluster, client
}

// BenchmarkAccessReports measures the time from a change of RBAC on a real cluster to the index.
func BenchmarkAccessReports(b *testing.B) {
	cluster, client := accessCluster(b)
	for range b.N {
		for name, engine := range accesstest.Engines {
			hub := accesstest.NewHub(b, engine(b))
			stop := hub.Report(b, cluster.AdminConfig(), agent.Configuration{}, agent.DefaultTiming)
			measureAccessChanges(b, name, hub, client)
			stop()
			hub.Stop(b)
		}
	}
}

// BenchmarkAccessRestart measures the time after a restart until all clusters of a large fleet are known.
func BenchmarkAccessRestart(b *testing.B) {
	_, client := accessCluster(b)
	defaults, err := fleetgen.AccessOf(b.Context(), client.RbacV1())
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		measureAccessRestart(b, defaults)
	}
}

// measureAccessChanges makes each change as soon as the index has the previous one, so that most of them wait for the
// interval between reports.
func measureAccessChanges(b *testing.B, engine string, hub *accesstest.Hub, client kubernetes.Interface) {
	b.Helper()
	hub.Await(b, accesstest.Cluster, "nobody", access.Denied, "")
	bindings := client.RbacV1().RoleBindings(metav1.NamespaceDefault)
	var took []time.Duration
	for i := range accessChanges / 2 {
		name := fmt.Sprintf("bench-%d", i)
		if _, err := bindings.Create(b.Context(), accesstest.Binding(name, name), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, hub.AwaitSoon(b, name, access.Allowed))
		if err := bindings.Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, hub.AwaitSoon(b, name, access.Denied))
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[len(took)*percent/100].Round(time.Millisecond) }
	b.ReportMetric(at(99).Seconds(), engine+"-change-p99-s")
	fmt.Printf("%s: %d changes of RBAC reach the index after p50 %s, p90 %s, p99 %s, max %s\n", engine, len(took), at(50), at(90), at(99), took[len(took)-1].Round(time.Millisecond))
}

// measureAccessRestart fills an embedded engine and opens it again.
func measureAccessRestart(b *testing.B, defaults *access.Update) {
	b.Helper()
	clusters, bindings := number(b, "ACCESS_CLUSTERS", accessClusters), number(b, "ACCESS_BINDINGS", accessBindings)
	dir := b.TempDir()
	engine, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	began := time.Now()
	for i := 1; i <= clusters; i++ { // the first cluster of a fleet is the hub
		name := fleetgen.ClusterName(i)
		names = append(names, name)
		if _, err := engine.Apply(b.Context(), accessReportOf(b, name, fleetgen.Access(defaults, i, bindings))); err != nil {
			b.Fatal(err)
		}
	}
	filled := time.Since(began)
	if err := engine.Close(); err != nil {
		b.Fatal(err)
	}
	runtime.GC()

	began = time.Now()
	if engine, err = embedded.Open(dir, embedded.Options{}); err != nil {
		b.Fatal(err)
	}
	loaded := time.Since(began)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	index := access.New()
	states := make([]ingest.State, len(names))
	for i, name := range names {
		states[i] = ingest.State{Name: name, LastReport: began}
	}
	f := feed.New(feed.Config{
		Engine: engine, Index: index, HubCluster: "local-cluster",
		States: func(context.Context) ([]ingest.State, error) { return states, nil },
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	began = time.Now()
	used := processorTime(b, os.Getpid())
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	known := func() int {
		n := 0
		for _, answer := range index.CanI(access.Subject{User: "nobody"}, access.Attributes{Verb: "get", Resource: "pods"}, names, 0) {
			if answer.Decision != access.Unknown {
				n++
			}
		}
		return n
	}
	err = framework.Poll(ctx, func(context.Context) error {
		if n := known(); n < len(names) {
			return fmt.Errorf("%d of %d clusters are known", n, len(names))
		}
		return nil
	})
	took := time.Since(began)
	used = processorTime(b, os.Getpid()) - used
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	cancel()
	<-done
	if err := engine.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric((loaded + took).Seconds(), "restart-s")
	fmt.Printf("%d clusters with %d bindings each, reported in %s: after a restart, the engine is loaded after %s, and all clusters are known %s later, with %s of CPU; the index takes %d MB\n",
		clusters, bindings, filled.Round(time.Second), loaded.Round(10*time.Millisecond), took.Round(10*time.Millisecond), used.Round(10*time.Millisecond), (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
}

// accessReportOf returns the report of a cluster with the given RBAC.
func accessReportOf(b *testing.B, cluster string, u *access.Update) *search.Report {
	b.Helper()
	property := func(name, text string) query.Property {
		return query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}}
	}
	encoded := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			b.Fatal(err)
		}
		return string(text)
	}
	report := &search.Report{Cluster: cluster, Full: true, Time: time.Now()}
	put := func(id, group, version, kind, plural, namespace, name string, internal ...query.Property) {
		properties := query.Properties{
			property(query.APIGroup, group), property(query.APIVersion, version), property(query.Created, "2026-01-01T00:00:00Z"),
			property(query.Kind, kind), property(query.KindPlural, plural), property(query.Name, name),
		}
		if namespace != "" {
			properties = append(properties, property(query.Namespace, namespace))
		}
		report.Put = append(report.Put, search.Resource{UID: cluster + "/" + id, Properties: properties, Internal: internal})
	}
	plurals := map[string]string{
		rbac.KindRole: "roles", rbac.KindClusterRole: "clusterroles", rbac.KindRoleBinding: "rolebindings", rbac.KindClusterRoleBinding: "clusterrolebindings",
	}
	object := func(key rbac.Key, internal ...query.Property) {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", len(report.Put))
		put(id, "rbac.authorization.k8s.io", "v1", key.Kind, plurals[key.Kind], key.Namespace, key.Name, internal...)
	}
	for key, rules := range u.Roles {
		object(key, property(inventory.Rules, encoded(rules)))
	}
	for key, binding := range u.Bindings {
		object(key, property(inventory.RoleRef, encoded(binding.RoleRef)), property(inventory.Subjects, encoded(binding.Subjects)))
	}
	put(inventory.AccessReportID, inventory.AccessGroup, inventory.AccessVersion, inventory.AccessReportKind, inventory.AccessReportPlural, "", inventory.AccessReportID,
		property(inventory.Access, encoded(inventory.AccessReport{Complete: true, Objects: len(u.Roles) + len(u.Bindings)})))
	return report
}
