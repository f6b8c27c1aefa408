package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	accessClusters = 1000
	accessBindings = 1000
	accessAsked    = 500
	accessUpdates  = 1000
	accessPeriod   = 10 * time.Millisecond
)

// accessKinds are kinds that users ask for, with their verbs.
var accessKinds = []access.Attributes{
	{Verb: "delete", Resource: "secrets"}, {Verb: "get", Resource: "secrets"}, {Verb: "get", Resource: "pods", Subresource: "log"},
	{Verb: "create", Resource: "pods", Subresource: "exec"}, {Verb: "create", Group: "apps", Resource: "deployments"}, {Verb: "list", Resource: "nodes"},
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"}, {Verb: "list", Resource: "pods"}, {Verb: "get", NonResource: true, Path: "/metrics"},
}

func accessQuestion(r *rand.Rand) (access.Subject, access.Attributes) {
	a := accessKinds[r.IntN(len(accessKinds))]
	if !a.NonResource && r.IntN(4) > 0 {
		a.Namespace = fmt.Sprintf("team-%d", r.IntN(20))
	}
	switch r.IntN(4) {
	case 0:
		return access.SubjectFor(fmt.Sprintf("system:serviceaccount:addon-%d:addon-%d-part-%d", r.IntN(90), r.IntN(90), r.IntN(8)), nil), a
	case 1:
		return access.SubjectFor("carol", []string{fmt.Sprintf("team-%d-of-%s", r.IntN(20), fleetgen.ClusterName(r.IntN(accessClusters)))}), a
	}
	return access.SubjectFor(fmt.Sprintf("user-%d", r.IntN(5000)), nil), a
}

// BenchmarkFleetAccess measures questions about a large fleet, and SubjectAccessReviews of
// one real cluster with the same RBAC.
func BenchmarkFleetAccess(b *testing.B) {
	dir := b.TempDir()
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "managed", Dir: filepath.Join(dir, "cluster"), NoFsync: true})
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
	// kube-controller-manager aggregates the rules of these roles some time after the start.
	for _, name := range []string{"admin", "edit", "view"} {
		if err := await.Poll(ctx, func(ctx context.Context) error {
			role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err == nil && len(role.Rules) < 5 {
				err = fmt.Errorf("ClusterRole %s has %d rules", name, len(role.Rules))
			}
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	defaults, err := fleetgen.AccessOf(ctx, client.RbacV1())
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		measureAccess(b, client, defaults)
	}
	reviews := &stopwatch{}
	r := rand.New(rand.NewPCG(3, 3))
	for range accessAsked {
		s, a := accessQuestion(r)
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: s.User, Groups: s.Groups}}
		if a.NonResource {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace}
		}
		reviews.time(func() {
			if _, err := client.AuthorizationV1().SubjectAccessReviews().Create(b.Context(), review, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		})
	}
	reviews.print("SubjectAccessReview of one real cluster")
}

func heapInUse() uint64 {
	// Twice: the first collection clears the strings that nobody uses, the second frees them.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func measureAccess(b *testing.B, hub kubernetes.Interface, defaults *access.Update) {
	b.Helper()
	before := heapInUse()
	x := access.New()
	clusters := make([]string, accessClusters)
	full := &stopwatch{}
	total := 0
	for i := range clusters {
		clusters[i] = fleetgen.ClusterName(i)
		u := fleetgen.Access(defaults, i, accessBindings)
		full.time(func() {
			x.Update(clusters[i], u)
		})
		x.SetState(clusters[i], access.State{Known: true})
		total += len(u.Bindings)
	}
	used := heapInUse() - before
	fmt.Printf("  %d clusters, %d bindings: %.1f MB, %.1f bytes for each binding and cluster, text included\n",
		len(clusters), total, float64(used)/1e6, float64(used)/float64(total))
	full.print("full report of a cluster")
	bindOperators(b, x, clusters)
	permissions := newUserPermissions(b, hub, x, clusters)

	r := rand.New(rand.NewPCG(4, 4))
	change := func() {
		i := r.IntN(len(clusters))
		key := rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "team-1", Name: fmt.Sprintf("changed-%d", r.IntN(100))}
		u := &access.Update{Bindings: map[rbac.Key]access.Binding{key: {
			RoleRef:  rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: "view"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: fmt.Sprintf("user-%d", r.IntN(5000))}},
		}}}
		x.Update(clusters[i], u)
	}
	ask := func(suffix string) {
		r, callers := rand.New(rand.NewPCG(5, 5)), rand.New(rand.NewPCG(7, 7))
		canI, whoCan, escalations, explain, listed := &stopwatch{}, &stopwatch{}, &stopwatch{}, &stopwatch{}, &stopwatch{}
		var found [3]int
		var most, size int
		for range accessAsked {
			s, a := accessQuestion(r)
			canI.time(func() {
				for _, answer := range x.CanI(s, a, clusters, 1) {
					if answer.Decision == access.Allowed {
						found[0]++
					}
				}
			})
			whoCan.time(func() {
				found[1] += x.WhoCan(access.Who{Attributes: a, Clusters: clusters, Limit: 100, MaxGrants: 10}).Total
			})
			escalations.time(func() {
				found[2] += x.WhoCan(access.Who{Attributes: a, Clusters: clusters, Limit: 100, MaxGrants: 10, Escalations: true}).Total
			})
			explain.time(func() { x.Holdings(s, clusters, 100) })
			caller := permissionCaller(callers)
			listed.time(func() {
				bindings, bytes := permissions.list(b, caller)
				most, size = max(most, bindings), max(size, bytes)
			})
		}
		canI.print("can-i on all clusters" + suffix)
		whoCan.print("who-can on all clusters" + suffix)
		escalations.print("who-can with escalations" + suffix)
		explain.print("holdings on all clusters" + suffix)
		listed.print("list of userpermissions" + suffix)
		fmt.Printf("  the longest list of userpermissions has %d bindings and %d KB of JSON\n", most, size/1000)
		fmt.Printf("  a question found on average %d allowing clusters, %d subjects, %d with escalations\n", found[0]/accessAsked, found[1]/accessAsked, found[2]/accessAsked)
	}
	ask("")
	one := &stopwatch{}
	for range accessUpdates {
		one.time(change)
	}
	one.print("change of one binding")

	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		ticker := time.NewTicker(accessPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				change()
			}
		}
	})
	ask(", 100 changes/s")
	started := time.Now()
	stopWatches := permissions.watch(b, rand.New(rand.NewPCG(6, 6)))
	fmt.Printf("  %d watches of userpermissions began within %.1f s\n", accessWatches, time.Since(started).Seconds())
	ask(fmt.Sprintf(", and %d watches", accessWatches))
	fmt.Printf("  they received %d events\n", stopWatches())
	close(stop)
	changing.Wait()
	runtime.KeepAlive(x)
}

// stopwatch contains measured durations.
type stopwatch struct{ took []time.Duration }

func (f *stopwatch) time(do func()) {
	started := time.Now()
	do()
	f.took = append(f.took, time.Since(started))
}

func (f *stopwatch) print(what string) {
	slices.Sort(f.took)
	ms := func(p int) float64 { return percentile(f.took, p).Seconds() * 1000 }
	fmt.Fprintf(os.Stdout, "  %-42s p50 %9.3f ms, p99 %9.3f ms (%d)\n", what, ms(50), ms(99), len(f.took))
}
