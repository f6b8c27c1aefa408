package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// replicas is a hub with two servers on a shared etcd.
type replicas struct {
	*fleet
	etcd    *localhub.Etcd
	servers []*localhub.APIServer
	// clients connect to the servers directly, one to each.
	clients []*versioned.Clientset
}

func startReplicas(t *testing.T) *replicas {
	t.Helper()
	hub, dir := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub"}), framework.OwnDir(t)
	etcd := framework.OwnEtcd(t, "etcd", dir)
	database := filepath.Join(dir, "database-url")
	if err := os.WriteFile(database, []byte(postgrestest.Start(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replicas{etcd: etcd}
	for _, name := range []string{"replica-a", "replica-b"} {
		server := framework.OwnServer(t, localhub.APIServerOptions{
			Hub: hub, Name: name, Dir: filepath.Join(dir, name), PKIDir: filepath.Join(dir, "pki"), LogDir: dir,
			EtcdServers: []string{etcd.Endpoint},
			Args: []string{
				"--search-engine=postgres", "--search-postgres-url-file=" + database,
				"--shutdown-delay-duration=1s",
				"--leader-elect-lease-duration=" + await.Scaled(8*time.Second).String(), "--leader-elect-renew-deadline=" + await.Scaled(6*time.Second).String(),
				"--leader-elect-retry-period=500ms",
			},
		})
		r.servers, r.clients = append(r.servers, server), append(r.clients, framework.Direct(t, server))
	}
	r.fleet = &fleet{framework.Serve(t, hub, r.servers[0])}
	if err := localhub.JoinCluster(t.Context(), hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplicas(t *testing.T) {
	r := startReplicas(t)
	t.Run("objects are shared", r.shareTruth)
	t.Run("search data is shared", r.shareSearch)
	t.Run("leader failover", r.takeOver)
	t.Run("rolling restart without failed requests", r.roll)
	t.Run("stored invalid ClusterPermissions", func(t *testing.T) { r.keepLegacy(t) })
	t.Run("stored invalid ManagedServiceAccounts", r.keepLegacyAccounts)
}

func (r *replicas) shareTruth(t *testing.T) {
	for i, client := range r.clients {
		other := r.clients[1-i]
		cp := framework.CreatePermission(t, client, framework.Permission(fmt.Sprintf("shared-%d", i)))
		if found, err := other.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Get(t.Context(), cp.Name, metav1.GetOptions{}); err != nil || found.UID != cp.UID {
			t.Errorf("get of ClusterPermission %s from the other replica = %v, %v, want UID %s", cp.Name, found, err, cp.UID)
		}
		framework.AwaitWorkCreated(t, client, cp.Name)
	}
}

// shareSearch reports to one server, and searches and watches with both.
func (r *replicas) shareSearch(t *testing.T) {
	reporting := r.reporterFor(t, framework.Cluster1)
	var agents []*versioned.Clientset
	for _, server := range r.servers {
		config, err := server.UserConfig(localhub.AgentUser(framework.Cluster1), localhub.AgentGroup(framework.Cluster1))
		agents = append(agents, framework.OCMClient(t, config, err))
	}
	resources, edges := reporting.shop()
	full := inventory.Sync{AddResources: resources, AddEdges: edges}
	if got := framework.Must(postReport(t.Context(), agents[0], syncPath(framework.Cluster1), true, full))(t); got.TotalResources != len(resources) || got.TotalEdges != len(edges) {
		t.Fatalf("response to the full report = %+v, want %d resources and %d edges", got, len(resources), len(edges))
	}
	pods := []string{"pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"}
	for i, client := range r.clients {
		finds(t, client, "kind:Pod", pods...)
		list := framework.Must(client.SearchV1alpha1().FleetResources(framework.Cluster1).List(t.Context(), metav1.ListOptions{FieldSelector: "kind=Pod"}))(t)
		watching := framework.Must(client.SearchV1alpha1().FleetResources(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{FieldSelector: "kind=Pod", ResourceVersion: list.ResourceVersion}))(t)
		name := fmt.Sprintf("to-the-other-%d", i)
		framework.Must(postReport(t.Context(), agents[1-i], syncPath(framework.Cluster1), false, inventory.Sync{AddResources: []inventory.Resource{reporting.resource("Pod", "default", name, nil)}}))(t)
		pods = append(pods, uidOf("Pod", "default", name))
		wantEvent(t, watching, watch.Added, uidOf("Pod", "default", name))
		watching.Stop()
		finds(t, client, "kind:Pod", pods...)
	}
	// A continue token of the first server must be valid on the second server.
	request := textQuery("kind:Pod")
	request.OrderBy, request.Limit = []string{"name"}, ptr.To[int32](4)
	first := framework.Must(search(t.Context(), r.clients[0], request))(t)
	request.Continue = first.Continue
	second := framework.Must(search(t.Context(), r.clients[1], request))(t)
	if got := append(first.Items, second.Items...); len(got) != len(pods) || int(second.Count) != len(pods) {
		t.Errorf("items on two pages from two replicas = %d, count = %d, want %d", len(got), second.Count, len(pods))
	}
	// A server caches the states of the clusters for a second.
	framework.Eventually(t, "the other replica serves the state of the Inventory", func(ctx context.Context) error {
		inventory, err := r.clients[1].SearchV1alpha1().Inventories(framework.Cluster1).Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err == nil && inventory.Status.State != searchv1alpha1.InventoryReporting {
			err = fmt.Errorf("status of the Inventory = %+v, want state %s", inventory.Status, searchv1alpha1.InventoryReporting)
		}
		return err
	})
}

func holder(ctx context.Context, hub kubernetes.Interface) (string, error) {
	lease, err := hub.CoordinationV1().Leases(localhub.HubNamespace).Get(ctx, "hub-apiserver-controllers", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

func (r *replicas) takeOver(t *testing.T) {
	before := framework.Must(holder(t.Context(), r.HubClient))(t)
	// When the holder of the lease is killed, the other server must acquire the lease.
	leader := -1
	for i, server := range r.servers {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		survivor := r.clients[1-i]
		cp := framework.CreatePermission(t, survivor, framework.Permission(fmt.Sprintf("one-left-%d", i)))
		framework.AwaitWorkCreated(t, survivor, cp.Name)
		if now := framework.Must(holder(t.Context(), r.HubClient))(t); now != before {
			leader, before = i, now
		}
		if err := server.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if leader < 0 {
		t.Error("the holder of the lease did not change after it was killed, want the other server")
	}
}

// roll restarts one replica after the other. If one replica refuses the connection, the client retries with the other
// replica, like a load balancer.
func (r *replicas) roll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var acknowledged []string
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("rolling-%d", i)
			if err := r.anyOf(i, func(client versioned.Interface) error {
				_, err := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(t.Context(), framework.Permission(name), metav1.CreateOptions{})
				return err
			}); err != nil {
				t.Errorf("create of ClusterPermission %s: error = %v, want none", name, err)
				continue
			}
			mu.Lock()
			acknowledged = append(acknowledged, name)
			mu.Unlock()
			if err := r.anyOf(i+1, func(client versioned.Interface) error {
				_, err := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Get(t.Context(), name, metav1.GetOptions{})
				return err
			}); err != nil {
				t.Errorf("get of ClusterPermission %s: error = %v, want none", name, err)
			}
		}
	})
	enough := func(n int) {
		framework.Eventually(t, fmt.Sprintf("at least %d ClusterPermissions are created", n), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if len(acknowledged) < n {
				return fmt.Errorf("%d are created", len(acknowledged))
			}
			return nil
		})
	}
	enough(20)
	for i, server := range r.servers {
		if err := server.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := server.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		enough(20 * (i + 2))
	}
	cancel()
	wg.Wait()
	t.Logf("%d ClusterPermissions were created during the restarts", len(acknowledged))
	for _, name := range acknowledged {
		framework.AwaitWorkCreated(t, r.clients[0], name)
	}
}

// anyOf sends a request to one replica, and to the other replica if the first does not answer. It returns the result
// of the replica that answers, or the errors of both.
func (r *replicas) anyOf(first int, send func(versioned.Interface) error) error {
	var refused error
	for i := range r.clients {
		err := send(r.clients[(first+i)%len(r.clients)])
		if err == nil || isAnswer(err) {
			return err
		}
		refused = errors.Join(refused, err)
	}
	return refused
}

func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
