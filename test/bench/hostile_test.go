package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/hostile"
)

const (
	hostileAuthors = 20
	// worksOfAuthor is the maximum number of ManifestWorks of an author.
	worksOfAuthor = 5
	// terminating is a namespace of the managed cluster that stays in deletion.
	terminating = "hostile-terminating"
	// authorTimeout bounds the wait of an author for a response.
	authorTimeout = 10 * time.Second
)

// authored are the languages of the inputs that an author sends in ManifestWorks.
var authored = []string{"cel", "jq", "jsonpath", "jsonpointer", "manifest", "patch"}

// BenchmarkHostileAuthors lets hostile authors create, change and delete ManifestWorks of one
// cluster for HOSTILE_MINUTES. Half of the authors use executors. Meanwhile it measures the
// requests of an administrator: from the creation of an object until a watch of the managed
// cluster has received the delivered objects, from the deletion of a ClusterPermission until its
// bindings are deleted, and from the revocation of an executor's permission until the last write
// as the executor. The server and the agent have the memory limits of their manifests.
func BenchmarkHostileAuthors(b *testing.B) {
	duration := time.Duration(number(b, "HOSTILE_MINUTES", 1)) * time.Minute
	seed := uint64(number(b, "HOSTILE_SEED", 1))
	dir := b.TempDir()
	if keep := os.Getenv("KEEP"); keep != "" {
		dir = filepath.Join(keep, b.Name())
	}
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	site, err := hostile.NewSite(ctx, dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := site.Stop(); err != nil {
			b.Error(err)
		}
	})
	e := &executing{fleet: &fleet{Fleet: site.Fleet}}
	if e.ocm, err = versioned.NewForConfig(site.Fleet.Hub.AdminConfig()); err != nil {
		b.Fatal(err)
	}
	if e.managed, err = kubernetes.NewForConfig(site.Fleet.Members[0].AdminConfig()); err != nil {
		b.Fatal(err)
	}
	e.prepareAuthors(b)
	arrived, watched := watchArrivals(b, e.fleet), e.watch(b)

	for range b.N {
		serverIdle, agentIdle := resident(b, e.Server.PID()), resident(b, e.Members[0].Agent.PID())
		var serverPeak, agentPeak float64
		working, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		var answers, refusals, failures atomic.Int64
		for i := range hostileAuthors {
			a := &author{number: i, random: rand.New(rand.NewPCG(seed, uint64(i))), host: e.Hub.AdminConfig().Host, answers: &answers, refusals: &refusals, failures: &failures}
			config, err := e.Hub.UserConfig(a.name())
			if err != nil {
				b.Fatal(err)
			}
			if a.client, err = authorClient(config); err != nil {
				b.Fatal(err)
			}
			running.Go(func() { a.work(working) })
		}
		running.Go(func() {
			for tick := time.NewTicker(100 * time.Millisecond); working.Err() == nil; <-tick.C {
				if mb, err := residentMemory(e.Server.PID()); err == nil {
					serverPeak = max(serverPeak, mb)
				}
				if mb, err := residentMemory(e.Members[0].Agent.PID()); err == nil {
					agentPeak = max(agentPeak, mb)
				}
			}
		})

		var delivered, permitted, revoked, refused, stopped []time.Duration
		started := time.Now()
		for i := 0; time.Since(started) < duration; i++ {
			delivered = append(delivered, e.applied(b, watched, fmt.Sprintf("bench-admin-%d", i)))
			name := fmt.Sprintf("bench-permission-%d", i)
			began := time.Now()
			post(b, e.fleet, name)
			arrived.wait(b, "ClusterPermission "+name+" is delivered", func() bool { _, ok := arrived.complete[name]; return ok })
			permitted = append(permitted, arrived.complete[name].Sub(began))
			began = time.Now()
			if err := e.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				b.Fatal(err)
			}
			arrived.wait(b, "all bindings of ClusterPermission "+name+" are deleted", func() bool { return arrived.seen[name] == 0 })
			revoked = append(revoked, time.Since(began))
			if i%5 == 0 {
				r := e.revocation(b, watched, fmt.Sprintf("bench-executor-%d", i), i/5)
				refused, stopped = append(refused, r.refused), append(stopped, r.stopped)
			}
		}
		stop()
		running.Wait()
		fmt.Printf("%d hostile authors for %s: %d requests answered, %d refused, %d failed or not answered in %s\n", hostileAuthors, duration, answers.Load(), refusals.Load(), failures.Load(), authorTimeout)
		report(b, "administrator: ManifestWork to object on the managed cluster", "apply", delivered)
		report(b, "administrator: ClusterPermission to bindings on the managed cluster", "permission", permitted)
		report(b, "revocation: ClusterPermission deleted to bindings gone", "revocation", revoked)
		report(b, "revocation: executor's permission deleted to ManifestWork refused", "refused", refused)
		report(b, "revocation: executor's permission deleted to last write as the executor", "last-write", stopped)
		b.ReportMetric(agentPeak, "agent-peak-MB")
		b.ReportMetric(serverPeak-serverIdle, "apiserver-above-idle-MB")
		fmt.Printf("resident memory: agent at most %.0f MB (%.0f MB before), apiserver at most %.0f MB (%.0f MB before)\n", agentPeak, agentIdle, serverPeak, serverIdle)
	}
}

// authorClient returns the client of an author.
func authorClient(config *rest.Config) (*http.Client, error) {
	config.Timeout = authorTimeout
	return rest.HTTPClientFor(config)
}

// prepareAuthors grants permissions to the authors on the hub, and to their executors on the managed
// cluster.
func (e *executing) prepareAuthors(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	hub, err := kubernetes.NewForConfig(e.Hub.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{executorNamespace, terminating} {
		if _, err := e.managed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			b.Fatal(err)
		}
	}
	// The finalizer keeps the ConfigMap, and with it the namespace.
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"hostile.example.com/kept"}}}
	if _, err := e.managed.CoreV1().ConfigMaps(terminating).Create(ctx, kept, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := e.managed.CoreV1().Namespaces().Delete(ctx, terminating, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "hostile-authors"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "execute-as"}},
	}}
	if _, err := hub.RbacV1().Roles(cluster1).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
	onManaged := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}
	for i := range hostileAuthors {
		a := author{number: i}
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.name()})
		onManaged.Subjects = append(onManaged.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: hostile.Namespace, Name: a.name()})
	}
	if _, err := hub.RbacV1().RoleBindings(cluster1).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := e.managed.RbacV1().RoleBindings(hostile.Namespace).Create(ctx, onManaged, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// applied creates a ManifestWork as an administrator, waits until its object exists on the managed
// cluster, and deletes the ManifestWork. It returns the time until the object exists.
func (e *executing) applied(b *testing.B, w *workWatch, name string) time.Duration {
	b.Helper()
	works, object := e.ocm.WorkV1().ManifestWorks(cluster1), name+"-0"
	began := time.Now()
	if _, err := works.Create(context.Background(), executedWork(name, "", 1, "1"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	w.wait(b, "ConfigMap "+object+" exists", func() bool { _, ok := w.written[object]; return ok })
	took := w.written[object].Sub(began)
	if err := works.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	return took
}

// author is a hostile author of ManifestWorks.
type author struct {
	number  int
	random  *rand.Rand
	client  *http.Client
	host    string
	classes []hostile.Class

	answers, refusals, failures *atomic.Int64
}

func (a *author) name() string { return fmt.Sprintf("hostile-author-%d", a.number) }

// work sends the requests of the author until ctx ends.
func (a *author) work(ctx context.Context) {
	a.classes = slices.DeleteFunc(hostile.Classes(), func(c hostile.Class) bool { return !slices.Contains(authored, c.Language) })
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", a.name(), i%worksOfAuthor)
		var requests []hostile.Request
		switch a.random.IntN(4) {
		case 0:
			requests = a.changing(name)
		case 1:
			requests = a.failing(name)
		default:
			c := hostile.Case{Class: &a.classes[a.random.IntN(len(a.classes))], Size: 1 + a.random.IntN(100), Seed: a.random.Uint64()}
			requests = c.Input().Named(name).Requests
		}
		for _, request := range requests {
			a.send(ctx, request)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(a.random.IntN(200)) * time.Millisecond):
		}
		// The next iteration uses this name again.
		a.send(ctx, hostile.Request{Method: http.MethodDelete, Path: worksPath + "/" + fmt.Sprintf("%s-%d", a.name(), (i+1)%worksOfAuthor)})
	}
}

const worksPath = "/apis/work.open-cluster-management.io/v1/namespaces/" + cluster1 + "/manifestworks"

// creating returns a request that creates a ManifestWork of ConfigMaps in a namespace. Every
// second author uses an executor.
func (a *author) creating(name, namespace string, manifests int) hostile.Request {
	executor := ""
	if a.number%2 == 1 {
		executor = fmt.Sprintf(`"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":%q,"name":%q}}},`, hostile.Namespace, a.name())
	}
	var objects bytes.Buffer
	for i := range manifests {
		if i > 0 {
			objects.WriteByte(',')
		}
		fmt.Fprintf(&objects, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"%s-%d"},"data":{"value":"0"}}`, namespace, name, i)
	}
	return hostile.Request{Method: http.MethodPost, Path: worksPath, Body: fmt.Appendf(nil,
		`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{%s"workload":{"manifests":[%s]}}}`, name, executor, objects.Bytes())}
}

// changing returns requests that create a ManifestWork of many manifests and then change it
// repeatedly.
func (a *author) changing(name string) []hostile.Request {
	requests := []hostile.Request{a.creating(name, hostile.Namespace, 1+a.random.IntN(100))}
	for i := range a.random.IntN(50) {
		requests = append(requests, hostile.Request{Method: http.MethodPatch, Path: worksPath + "/" + name, ContentType: string(types.MergePatchType), Body: fmt.Appendf(nil,
			`{"spec":{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"%s-0"},"data":{"value":"%d"}}]}}}`, hostile.Namespace, name, i%2)})
	}
	return requests
}

// failing returns a request that creates a ManifestWork that cannot be applied.
func (a *author) failing(name string) []hostile.Request {
	namespaces := []string{"absent", terminating, "kube-system"}
	return []hostile.Request{a.creating(name, namespaces[a.random.IntN(len(namespaces))], 1+a.random.IntN(100))}
}

func (a *author) send(ctx context.Context, r hostile.Request) {
	request, err := http.NewRequestWithContext(ctx, r.Method, a.host+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		a.failures.Add(1)
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if r.ContentType != "" {
		request.Header.Set("Content-Type", r.ContentType)
	}
	response, err := a.client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		err = errors.Join(err, response.Body.Close())
	}
	switch {
	case ctx.Err() != nil:
	case err != nil || response.StatusCode >= 500:
		a.failures.Add(1)
	case response.StatusCode >= 400:
		a.refusals.Add(1)
	default:
		a.answers.Add(1)
	}
}
