package replicas

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// leaderLease is the Lease of the replica that runs the controllers.
const leaderLease = "hub-apiserver-controllers"

// load is a number of clients that send requests through the hub. A request fails if its caller sees an error; what
// client-go retries by itself is no failure.
type load struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	requests atomic.Int64
	mu       sync.Mutex
	failures []string
	written  map[string]bool
}

// startLoad starts clients that create, read, patch, list and delete ManifestWorks.
func startLoad(t *testing.T, r *framework.Replicated, clients int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, written: map[string]bool{}}
	for i := range clients {
		_, client := r.Clients(t)
		l.running.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l.round(ctx, client, fmt.Sprintf("load-%s-%d-%d", framework.Unique("x"), i, round))
			}
		})
	}
	return l
}

// round sends one request of each kind.
func (l *load) round(ctx context.Context, client versioned.Interface, name string) {
	works := client.WorkV1().ManifestWorks(framework.Cluster1)
	// A round that has begun is finished, so that no request ends because the test does.
	ctx = context.WithoutCancel(ctx)
	_, err := works.Create(ctx, framework.ConfigMapWork(name), metav1.CreateOptions{})
	if l.count("create", err) {
		l.mu.Lock()
		l.written[name] = true
		l.mu.Unlock()
	}
	_, err = works.Get(ctx, name, metav1.GetOptions{})
	l.count("get", err)
	_, err = works.Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"round":"1"}}}`), metav1.PatchOptions{})
	l.count("patch", err)
	_, err = works.List(ctx, metav1.ListOptions{Limit: 5})
	l.count("list", err)
	if strings.HasSuffix(name, "0") { // the others stay, and are counted at the end
		return
	}
	if l.count("delete", works.Delete(ctx, name, metav1.DeleteOptions{})) {
		l.mu.Lock()
		delete(l.written, name)
		l.mu.Unlock()
	}
}

func (l *load) count(verb string, err error) bool {
	l.requests.Add(1)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), verb, err))
	}
	return err == nil
}

// more waits until the clients have sent n more requests.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	end := l.requests.Load() + n
	framework.Eventually(t, fmt.Sprintf("the clients have sent %d more requests", n), func(context.Context) error {
		if now := l.requests.Load(); now < end {
			return fmt.Errorf("%d are missing", end-now)
		}
		return nil
	})
}

// stop ends the load, and fails the test if a request has failed or an acknowledged object is lost.
func (l *load) stop(t *testing.T, r *framework.Replicated) {
	t.Helper()
	l.cancel()
	l.running.Wait()
	if len(l.failures) > 0 {
		t.Errorf("failed requests = %d of %d, want 0:\n%s", len(l.failures), l.requests.Load(), strings.Join(l.failures[:min(10, len(l.failures))], "\n"))
	}
	works, err := r.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range works.Items {
		delete(l.written, work.Name)
	}
	if len(l.written) > 0 {
		t.Errorf("acknowledged ManifestWorks that are lost = %v, want none", l.written)
	}
	t.Logf("%d requests, %d failed", l.requests.Load(), len(l.failures))
}

func TestReplicas(t *testing.T) {
	r := framework.StartReplicated(t, framework.OwnDir(t), framework.ReplicatedOptions{Database: postgrestest.Start(t)})
	if err := localhub.JoinCluster(t.Context(), r.Hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	s := &replicated{r}
	t.Run("any replica serves any request", s.anyReplica)
	t.Run("rolling restart", s.roll)
	t.Run("the leader stops", s.stopLeader)
	t.Run("scale from three to one and back", s.scale)
	t.Run("serving certificates are replaced", s.rotateServing)
	t.Run("certificates of etcd clients and members are replaced", s.rotateEtcd)
}

type replicated struct{ *framework.Replicated }

// anyReplica writes to each replica and reads from each other one, with all its kinds of requests.
func (r *replicated) anyReplica(t *testing.T) {
	var clients []*versioned.Clientset
	for _, replica := range r.Replicas {
		clients = append(clients, framework.Direct(t, replica.APIServer))
	}
	for i, writer := range clients {
		name := fmt.Sprintf("of-replica-%d", i)
		written := framework.Must(writer.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), framework.ConfigMapWork(name), metav1.CreateOptions{}))(t)
		for j, reader := range clients {
			works := reader.WorkV1().ManifestWorks(framework.Cluster1)
			read, err := works.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || read.UID != written.UID {
				t.Errorf("get from replica %d of a ManifestWork of replica %d = %v, %v, want UID %s", j, i, read, err, written.UID)
			}
			list := framework.Must(works.List(t.Context(), metav1.ListOptions{}))(t)
			found := false
			for _, item := range list.Items {
				found = found || item.Name == name
			}
			if !found {
				t.Errorf("list from replica %d has no ManifestWork of replica %d, want the acknowledged object", j, i)
			}
			// A watch from the revision of another replica.
			watching := framework.Must(works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: written.ResourceVersion, FieldSelector: "metadata.name=" + name}))(t)
			framework.Must(clients[(j+1)%len(clients)].WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, "application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{"by":"%d-%d"}}}`, i, j), metav1.PatchOptions{}))(t)
			select {
			case event, open := <-watching.ResultChan():
				if !open || event.Type != "MODIFIED" {
					t.Errorf("event of replica %d = %v, %t, want MODIFIED", j, event, open)
				}
			case <-time.After(await.Patience):
				t.Errorf("no event of replica %d", j)
			}
			watching.Stop()
		}
	}
}

// roll replaces one replica after the other, as a Deployment does.
func (r *replicated) roll(t *testing.T) {
	l := startLoad(t, r.Replicated, 4)
	l.more(t, 100)
	for _, replica := range r.Replicas {
		if err := replica.Terminate(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.more(t, 50)
		if err := replica.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.more(t, 50)
	}
	l.stop(t, r.Replicated)
}

// leader returns the holder of the Lease of the controllers, and the time of its renewal.
func (r *replicated) leader(ctx context.Context) (string, error) {
	lease, err := r.HubClient.CoordinationV1().Leases(localhub.HubNamespace).Get(ctx, leaderLease, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// stopLeader deletes the Pod of the leader, whichever it is, until each replica has stopped as the leader or the
// leadership has moved twice.
func (r *replicated) stopLeader(t *testing.T) {
	l := startLoad(t, r.Replicated, 4)
	l.more(t, 50)
	before := framework.Must(r.leader(t.Context()))(t)
	for _, replica := range r.Replicas {
		if err := replica.Terminate(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := framework.Must(r.leader(t.Context()))(t)
		if err := replica.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now == before {
			continue
		}
		// The new leader runs the controllers.
		framework.Eventually(t, "another replica leads", func(ctx context.Context) error {
			now, err := r.leader(ctx)
			if err == nil && (now == before || now == "") {
				return fmt.Errorf("the leader is still %q", now)
			}
			return err
		})
		cp := framework.CreatePermission(t, r.OCM, framework.Permission("after-leader"))
		framework.AwaitWorkCreated(t, r.OCM, cp.Name)
		l.stop(t, r.Replicated)
		return
	}
	t.Error("the leader did not change after each replica was stopped once, want another leader")
	l.stop(t, r.Replicated)
}

func (r *replicated) scale(t *testing.T) {
	l := startLoad(t, r.Replicated, 4)
	l.more(t, 50)
	for _, replica := range r.Replicas[1:] {
		if err := replica.Terminate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.more(t, 100)
	for _, replica := range r.Replicas[1:] {
		if err := replica.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.more(t, 100)
	l.stop(t, r.Replicated)
}

// rotateServing replaces the serving certificate of each replica, and waits until it is served.
func (r *replicated) rotateServing(t *testing.T) {
	l := startLoad(t, r.Replicated, 4)
	l.more(t, 50)
	for _, replica := range r.Replicas {
		before, err := replica.ServedCertificate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := replica.IssueServing(time.Time{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, replica.Node+" serves the new certificate", func(ctx context.Context) error {
			now, err := replica.ServedCertificate(ctx)
			if err == nil && now.Equal(before) {
				return errors.New("it serves the previous one")
			}
			return err
		})
		l.more(t, 50)
	}
	l.stop(t, r.Replicated)
}

// rotateEtcd replaces the certificates of all members, the authority of clients and their certificates. The members
// restart, because etcd reads authorities only when it starts. The leader is the last one, while there are no
// requests: writes that etcd has not committed fail when another member becomes its leader.
func (r *replicated) rotateEtcd(t *testing.T) {
	l := startLoad(t, r.Replicated, 4)
	l.more(t, 50)
	leader := framework.Must(r.Etcd.Leader(t.Context()))(t)
	if _, err := r.Etcd.ReplaceClientAuthority(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Etcd.TrustClients(), r.Etcd.IssueAdmin()); err != nil {
		t.Fatal(err)
	}
	for _, replica := range r.Replicas {
		certs := filepath.Dir(framework.Argument(t, replica.Args, "--etcd-cafile="))
		if err := r.Etcd.IssueClient(certs, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	restart := func(member *localhub.EtcdMember) {
		t.Helper()
		if err := r.Etcd.IssueServing(member); err != nil {
			t.Fatal(err)
		}
		if err := member.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := member.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, member := range r.Etcd.Members {
		if i != leader {
			restart(member)
			l.more(t, 100)
		}
	}
	l.stop(t, r.Replicated)
	restart(r.Etcd.Members[leader])

	framework.Eventually(t, "all replicas are ready after the leader of etcd has changed", r.Ready)

	// All members accept the new certificates only.
	l = startLoad(t, r.Replicated, 4)
	l.more(t, 200)
	l.stop(t, r.Replicated)
}
