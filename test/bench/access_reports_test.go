package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	agent "open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/accesstest"
	"open-cluster-management.io/hub-apiserver/test/await"
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
	framework.KillLater(b, cluster.Kill)
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

// BenchmarkAccessRestart measures the time after a restart of the server until all clusters of a large fleet are known.
func BenchmarkAccessRestart(b *testing.B) {
	_, client := accessCluster(b)
	defaults, err := fleetgen.AccessOf(b.Context(), client.RbacV1())
	if err != nil {
		b.Fatal(err)
	}
	h := startAccessHub(b)
	h.fill(b, defaults)
	for range b.N {
		h.restart(b)
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

// accessHub is a hub whose server knows the RBAC of many clusters.
type accessHub struct {
	*registrationHub
	// direct sends requests of an administrator directly to the server.
	direct   *versioned.Clientset
	clusters int
}

func startAccessHub(b *testing.B) *accessHub {
	b.Helper()
	h := &accessHub{registrationHub: startRegistrationHub(b, "access", serverEnvironment(b)), clusters: number(b, "ACCESS_CLUSTERS", accessClusters)}
	config, err := h.Server.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	h.direct, _ = clientsOf(b, config)
	return h
}

// fill creates the clusters and reports their RBAC.
func (h *accessHub) fill(b *testing.B, defaults *access.Update) {
	b.Helper()
	bindings := number(b, "ACCESS_BINDINGS", accessBindings)
	began := time.Now()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(registrars)
	for i := 1; i <= h.clusters; i++ { // the first cluster of a fleet is the hub
		group.Go(func() error {
			name := fleetgen.ClusterName(i)
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := h.direct.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{}); err != nil {
				return err
			}
			report := accessReportOf(b, name, fleetgen.Access(defaults, i, bindings))
			for i := range report.Put {
				// Agents send internal properties with the others.
				report.Put[i].Properties = append(report.Put[i].Properties, report.Put[i].Internal...)
			}
			agent := simulatedAgent{cluster: name, ocm: h.direct}
			return repeatedly(ctx, func(ctx context.Context) error { return agent.send(ctx, report) })
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	if err := await.Poll(b.Context(), func(ctx context.Context) error {
		known, err := h.known(ctx)
		if err == nil && known < h.clusters {
			err = fmt.Errorf("%d of %d clusters are known", known, h.clusters)
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("%d clusters with %d bindings each reported in %s\n", h.clusters, bindings, time.Since(began).Round(time.Second))
}

// known returns the number of clusters of which a review does not say Unknown.
func (h *accessHub) known(ctx context.Context) (int, error) {
	review := &accessv1alpha1.FleetAccessReview{}
	review.Spec.User = "nobody"
	review.Spec.ResourceAttributes = &accessv1alpha1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: metav1.NamespaceDefault}
	review.Spec.Limit = new(int32(1))
	answer, err := h.direct.AccessV1alpha1().FleetAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	return int(answer.Status.Allowed + answer.Status.Denied), nil
}

// restart measures the time from the first answer of a restarted server until no cluster is Unknown.
func (h *accessHub) restart(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := h.Server.Stop(ctx); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := h.Server.Launch(); err != nil {
		b.Fatal(err)
	}
	var answered time.Duration
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		known, err := h.known(ctx)
		if err == nil && answered == 0 {
			answered = time.Since(began)
		}
		return err == nil && known >= h.clusters, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	complete := time.Since(began)
	used := processorTime(b, h.Server.PID())
	b.ReportMetric((complete - answered).Seconds(), "unknown-s")
	fmt.Printf("%d clusters: a restarted server answers after %s, and no cluster is Unknown after %s, with %s of CPU\n",
		h.clusters, answered.Round(10*time.Millisecond), complete.Round(10*time.Millisecond), used.Round(10*time.Millisecond))
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
