package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	searchPath = "/apis/search.open-cluster-management.io/v1alpha1/"
	// searchUse is the ClusterRole of whoever may search at all.
	searchUse = "open-cluster-management:search:use"
)

// BenchmarkSearchHTTP measures the same queries over HTTP, direct and through the
// hub's kube-apiserver, and reports over HTTP.
func BenchmarkSearchHTTP(b *testing.B) {
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
	users := searchingUsers(b, f, o)
	sendFleet(b, f, o)
	for range b.N {
		for _, way := range []struct {
			name   string
			config func(user string) (*rest.Config, error)
		}{
			{"direct", func(user string) (*rest.Config, error) { return f.Server.UserConfig(user, groupsOf(user)...) }},
			{"through the hub", func(user string) (*rest.Config, error) { return f.Hub.UserConfig(user, groupsOf(user)...) }},
		} {
			clients := map[string]rest.Interface{}
			for _, u := range users {
				config, err := way.config(u.name)
				if err != nil {
					b.Fatal(err)
				}
				clients[u.name] = restClient(b, config)
				started := time.Now()
				if err := queryNamed("5").post(b.Context(), clients[u.name], u); err != nil {
					b.Fatal(err)
				}
				fmt.Printf("first search of %s, %s: %.1f ms\n", u.name, way.name, ms(time.Since(started)))
			}
			fmt.Printf("over HTTP, %s:\n", way.name)
			compareWithBaseline(b, users, func(count int, u searchUser, q *searchQuery) []time.Duration {
				ctx, cancel := context.WithTimeout(b.Context(), measured)
				defer cancel()
				return repeat(ctx, b, count, 1, func(int) error { return q.post(b.Context(), clients[u.name], u) })
			})
		}
	}
	fmt.Printf("apiserver: %.0f MB resident with %d resources\n", resident(b, f.Server.PID()), o.Clusters*o.PerCluster)
}

func groupsOf(user string) []string {
	if user == "admin" {
		return []string{"system:masters"}
	}
	return nil
}

func restClient(b *testing.B, config *rest.Config) rest.Interface {
	b.Helper()
	config.QPS = -1
	// The baseline was measured without; it would be most of what a page of items takes.
	config.DisableCompression = true
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	return client.Discovery().RESTClient()
}

// searchingUsers gives the restricted users their permissions on the hub, which knows all the clusters.
func searchingUsers(b *testing.B, f *localhub.Fleet, o fleetgen.Options) []searchUser {
	b.Helper()
	seen := max(1, o.Clusters/5)
	users := []searchUser{{name: "admin", first: 1}, {name: "U20", first: 1}, {name: "U80", first: max(1, o.Clusters-seen)}}
	var namespaces, clusters, roles, bindings []*unstructured.Unstructured
	names := map[string]bool{}
	for i := range o.Clusters {
		names[fleetgen.ClusterName(i)] = true
		cluster := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hubAcceptsClient": true}}}
		cluster.SetAPIVersion("cluster.open-cluster-management.io/v1")
		cluster.SetKind("ManagedCluster")
		cluster.SetName(fleetgen.ClusterName(i))
		clusters = append(clusters, cluster)
	}
	for _, u := range users[1:] {
		for _, object := range visibilitytest.Parse(b, fleetgen.Policy(u.first, seen, 50)) {
			switch object := object.(type) {
			case *rbacv1.ClusterRole:
				roles = append(roles, asUnstructured(b, object))
			case *rbacv1.RoleBinding:
				names[object.Namespace] = true
				object.Name += "-" + strings.ToLower(u.name)
				object.Subjects[0].Name = u.name
				bindings = append(bindings, asUnstructured(b, object))
			}
		}
		bindings = append(bindings, asUnstructured(b, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: "search-" + strings.ToLower(u.name)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: searchUse},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.name}},
		}))
	}
	for name := range names {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(name)
		namespaces = append(namespaces, namespace)
	}
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	for _, objects := range [][]*unstructured.Unstructured{namespaces, clusters, roles, bindings} {
		if err := f.Hub.Apply(ctx, objects...); err != nil {
			b.Fatal(err)
		}
	}
	return users
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
func sendFleet(b *testing.B, f *localhub.Fleet, o fleetgen.Options) {
	b.Helper()
	config, err := f.Server.UserConfig("admin", groupsOf("admin")...)
	if err != nil {
		b.Fatal(err)
	}
	client := restClient(b, config)
	var took []time.Duration
	var whole time.Duration
	resources := 0
	for i := range o.Clusters {
		full := fleetgen.Cluster(o, i)
		body, err := fleetgen.Sync(full)
		if err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		answer, err := client.Post().AbsPath(searchPath+"namespaces", full.Cluster, "inventories", full.Cluster, "sync").
			SetHeader("Content-Type", "application/json").SetHeader(inventory.OverwriteHeader, "true").Body(body).DoRaw(b.Context())
		if err != nil {
			b.Fatalf("report of %s: %v: %.500s", full.Cluster, err, answer)
		}
		took = append(took, time.Since(started))
		whole += took[i]
		var response inventory.Response
		if err := json.Unmarshal(answer, &response); err != nil || response.TotalResources != len(full.Put) || response.TotalEdges != len(full.AddEdges) {
			b.Fatalf("report of %s: %v: %.500s", full.Cluster, err, answer)
		}
		resources += response.TotalResources
	}
	b.ReportMetric(float64(resources)/whole.Seconds(), "http-ingest-resources/s")
	fmt.Printf("%d resources over HTTP: %.0f resources/s (baseline 8,600-9,900)\n", resources, float64(resources)/whole.Seconds())
	report(b, "full report over HTTP", "http-full", took)
}

// post asks once over HTTP.
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
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("query %s: %w", q.number, err)
	}
	answer, err := client.Post().AbsPath(searchPath+resource).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("query %s of %s: %w: %.300s", q.number, u.name, err, answer)
	}
	if !bytes.Contains(answer, []byte(`"status"`)) {
		return fmt.Errorf("query %s of %s: the answer has no status: %.300s", q.number, u.name, answer)
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
