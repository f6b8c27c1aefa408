package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/network"
)

// rows are the faults, in the order of the document.
var rows []row

func init() { rows = allRows() }

func allRows() []row {
	return []row{
		{name: "replica-kill", fault: "kill -9 of a replica; the test starts it again at once", single: true, short: true, run: kill(anyReplica)},
		{name: "replica-restart", fault: "a replica is deleted, and replaced by a new one", single: true, run: replaceReplica},
		{name: "replica-stop", fault: "SIGSTOP of a replica", single: true, run: pause(anyReplica)},
		{name: "leader-kill", fault: "kill -9 of the replica that runs the controllers", single: true, run: takeOver(kill(leader))},
		{name: "leader-stop", fault: "SIGSTOP of the replica that runs the controllers", single: true, run: takeOver(pause(leader))},
		{name: "etcd-member-kill", fault: "kill -9 of an etcd member that follows; started later", single: true, run: down(etcdFollower)},
		{name: "etcd-member-stop", fault: "SIGSTOP of an etcd member that follows", single: true, run: pause(etcdFollower)},
		{name: "etcd-leader-kill", fault: "kill -9 of the leader of etcd; started later", single: true, short: true, run: down(etcdLeader)},
		{name: "etcd-leader-stop", fault: "SIGSTOP of the leader of etcd", single: true, run: pause(etcdLeader)},
		{name: "etcd-majority-kill", fault: "kill -9 of two of three etcd members; started later", outage: true, run: etcdMajority((*localhub.Process).Kill, start)},
		{name: "etcd-majority-stop", fault: "SIGSTOP of two of three etcd members", outage: true, run: etcdMajority((*localhub.Process).Pause, resume)},
		{name: "hub-kill", fault: "kill -9 of the hub's kube-apiserver; started at once", single: true, outage: true, run: restart(hubServer)},
		{name: "hub-stop", fault: "SIGSTOP of the hub's kube-apiserver", single: true, outage: true, run: pause(hubServer)},
		{name: "managed-kill", fault: "kill -9 of the managed cluster's kube-apiserver; started at once", single: true, outage: true, run: restart(managedServer)},
		{name: "managed-stop", fault: "SIGSTOP of the managed cluster's kube-apiserver", single: true, outage: true, run: pause(managedServer)},
		{name: "agent-kill", fault: "kill -9 of the agent; started at once", single: true, outage: true, run: restart(agent)},
		{name: "agent-stop", fault: "SIGSTOP of the agent", single: true, outage: true, run: pause(agent)},
		{name: "postgres-kill", fault: "kill -9 of PostgreSQL; started at once", single: true, outage: true, run: killPostgres},
		{name: "postgres-stop", fault: "SIGSTOP of PostgreSQL", single: true, outage: true, run: stopPostgres},

		{name: "cut-hub-replica", fault: "no packets between the hub and a replica", single: true, run: cut("hub", "replica-0", true, true)},
		{name: "cut-hub-to-replica", fault: "no packets from the hub to a replica", single: true, run: cut("hub", "replica-0", true, false)},
		{name: "cut-replica-to-hub", fault: "no packets from a replica to the hub", single: true, run: cut("hub", "replica-0", false, true)},
		{name: "cut-replica-etcd-member", fault: "no packets between a replica and an etcd member", single: true, short: true, run: cut("replica-1", "etcd-1", true, true)},
		{name: "cut-replica-to-etcd-member", fault: "no packets from a replica to an etcd member", single: true, run: cut("replica-1", "etcd-1", true, false)},
		{name: "cut-etcd-member-to-replica", fault: "no packets from an etcd member to a replica", single: true, run: cut("replica-1", "etcd-1", false, true)},
		{name: "cut-replica-etcd", fault: "no packets between a replica and all etcd members", single: true, run: cutAll("replica-2", "etcd-0", "etcd-1", "etcd-2")},
		{name: "cut-etcd-leader", fault: "no packets between the leader of etcd and the other members", single: true, run: cutEtcdLeader},
		{name: "cut-etcd-leader-out", fault: "no packets from the leader of etcd to the other members", single: true, run: cutEtcdLeaderOut},
		{name: "cut-agent-hub", fault: "no packets between the agent and the hub", single: true, outage: true, run: cut("cluster1-agent", "hub", true, true)},
		{name: "cut-agent-to-hub", fault: "no packets from the agent to the hub", single: true, outage: true, run: cut("cluster1-agent", "hub", true, false)},
		{name: "cut-hub-to-agent", fault: "no packets from the hub to the agent", single: true, outage: true, run: cut("cluster1-agent", "hub", false, true)},
		{name: "cut-agent-managed", fault: "no packets between the agent and the managed cluster", single: true, outage: true, run: cut("cluster1-agent", "cluster1", true, true)},
		{name: "cut-replica-postgres", fault: "no packets between a replica and PostgreSQL", single: true, short: true, run: cut("replica-1", "postgres", true, true)},
		{name: "cut-replica-to-postgres", fault: "no packets from a replica to PostgreSQL", single: true, run: cut("replica-1", "postgres", true, false)},
		{name: "cut-postgres-to-replica", fault: "no packets from PostgreSQL to a replica", single: true, run: cut("replica-1", "postgres", false, true)},
		{name: "lossy-hub-replica", fault: "5 % loss and 20 ms delay between the hub and a replica", run: degrade("hub", "replica-0")},
		{name: "lossy-replica-etcd", fault: "5 % loss and 20 ms delay between a replica and an etcd member", run: degrade("replica-0", "etcd-0")},
		{name: "lossy-etcd", fault: "5 % loss and 20 ms delay between two etcd members", run: degrade("etcd-0", "etcd-1")},
		{name: "lossy-replica-postgres", fault: "5 % loss and 20 ms delay between a replica and PostgreSQL", run: degrade("replica-1", "postgres")},
		{name: "lossy-agent-hub", fault: "5 % loss and 20 ms delay between the agent and the hub", run: degrade("cluster1-agent", "hub")},

		{name: "disk-full-member", fault: "the disk of an etcd member is full, then has space", single: true, run: fillMember},
		{name: "disk-full-etcd", fault: "the disks of all etcd members are full, then have space", outage: true, run: fillEtcd},
		{name: "disk-full-postgres", fault: "the disk of PostgreSQL is full while clusters report, then has space", single: true, outage: true, run: fillPostgres},
		{name: "etcd-compaction", fault: "etcd is compacted to its last revision ten times per second", run: compact},
		{name: "serving-certificate-expired", fault: "the serving certificate of a replica expires, and is replaced", single: true, outage: true, run: expireServing},
		{name: "etcd-client-certificate-expired", fault: "the etcd client certificate of a replica expires, all members restart, and it is replaced", single: true, outage: true, run: expireEtcdClient},
		{name: "agent-certificate-expired", fault: "the hub client certificate of the agent expires while the agent is stopped; started later", single: true, outage: true, run: expireAgent},
		{name: "front-proxy-certificate-expired", fault: "the client certificate of the hub's aggregation layer expires, and is replaced", single: true, outage: true, run: expireFrontProxy},
		{name: "front-proxy-authority-replaced", fault: "the authority and the client certificate of the hub's aggregation layer are replaced", single: true, outage: true, run: replaceFrontProxy},
		{name: "hub-authority-replaced", fault: "the authority of the hub's serving certificate is replaced, after all clients trust the new one", single: true, outage: true, run: replaceHubAuthority},
		{name: "clock-replica-ahead", fault: "the clock of a replica is an hour ahead", run: shift(anyReplica, time.Hour)},
		{name: "clock-replica-behind", fault: "the clock of a replica is an hour behind", run: shift(anyReplica, -time.Hour)},
		{name: "clock-leader-ahead", fault: "the clock of the replica that runs the controllers is an hour ahead", run: shift(leader, time.Hour)},
		{name: "clock-agent-ahead", fault: "the clock of the agent is an hour ahead", run: shift(agent, time.Hour)},
		{name: "clock-agent-behind", fault: "the clock of the agent is an hour behind", run: shift(agent, -time.Hour)},
		{name: "snapshot-restored", fault: "etcd is restored from a snapshot that was saved before further writes, with the agent connected", single: true, outage: true, run: restoreSnapshot, then: confirmRestore},
		{name: "apiservice-down", fault: "all replicas are down, while namespaces with ManifestWorks are deleted", outage: true, run: apiServiceDown},
		{name: "random", fault: "faults of this table at random, up to three at once", outage: true, run: random},
	}
}

// target selects the process that a fault breaks.
type target func(ctx context.Context, c *campaign) (*localhub.Process, error)

func anyReplica(_ context.Context, c *campaign) (*localhub.Process, error) {
	return c.Replicas[1].Process, nil
}

// leader selects the replica that holds the Lease of the controllers. Its identity begins with its host name.
func leader(ctx context.Context, c *campaign) (*localhub.Process, error) {
	var leads *localhub.Process
	// At random, the hub may be down.
	err := await.Poll(ctx, func(ctx context.Context) error {
		replica, err := c.leader(ctx)
		if err == nil {
			leads = replica.Process
		}
		return err
	})
	return leads, err
}

// takeOver adds the time until another replica runs the controllers to a fault of the leader. At random, the fault may
// end before another one leads.
func takeOver(inner fault) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		if c.combined {
			return inner(ctx, c)
		}
		before, err := c.holder(ctx)
		if err != nil {
			return "", err
		}
		began := time.Now()
		took := make(chan time.Duration, 1)
		failed := make(chan error, 1)
		go func() {
			failed <- await.Poll(ctx, func(ctx context.Context) error {
				now, err := c.holder(ctx)
				if err == nil && (now == before || now == "") {
					return fmt.Errorf("the leader is still %q", before)
				}
				if err == nil {
					took <- time.Since(began)
				}
				return err
			})
		}()
		_, err = inner(ctx, c)
		if err := errors.Join(err, <-failed); err != nil {
			return "", err
		}
		taken := <-took
		if taken > bar {
			err = fmt.Errorf("another replica leads after %s, want at most %s", taken, bar)
		}
		return fmt.Sprintf("Another replica leads after %.0f s", taken.Seconds()), err
	}
}

// holder returns the identity of the leader.
func (c *campaign) holder(ctx context.Context) (string, error) {
	lease, err := c.HubClient.CoordinationV1().Leases(localhub.HubNamespace).Get(ctx, "hub-apiserver-controllers", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

func (c *campaign) leader(ctx context.Context) (*localhub.Replica, error) {
	holder, err := c.holder(ctx)
	if err != nil {
		return nil, err
	}
	for _, replica := range c.Replicas {
		if strings.HasPrefix(holder, replica.Node+"_") {
			return replica, nil
		}
	}
	return nil, fmt.Errorf("no replica is the leader %q", holder)
}

func etcdMember(leads bool) target {
	return func(ctx context.Context, c *campaign) (*localhub.Process, error) {
		i, err := c.Etcd.Leader(ctx)
		if err != nil {
			return nil, err
		}
		if !leads {
			i = (i + 1) % len(c.Etcd.Members)
		}
		return c.Etcd.Members[i].Process, nil
	}
}

var etcdFollower, etcdLeader = etcdMember(false), etcdMember(true)

func hubServer(_ context.Context, c *campaign) (*localhub.Process, error) {
	return c.Hub.APIServer, nil
}
func managedServer(_ context.Context, c *campaign) (*localhub.Process, error) {
	return c.Members[0].APIServer, nil
}
func agent(_ context.Context, c *campaign) (*localhub.Process, error) {
	return c.Members[0].Agent.Process, nil
}

type fault = func(ctx context.Context, c *campaign) (string, error)

// hold waits for the duration of a fault.
func (c *campaign) hold(ctx context.Context) error { return sleep(ctx, c.pause) }

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(duration):
		return nil
	}
}

// kill kills a process that others start again, and waits until everything works.
func kill(of target) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		process, err := of(ctx, c)
		if err != nil {
			return "", err
		}
		if err := process.Kill(); err != nil {
			return "", err
		}
		return "", c.whole(ctx)
	}
}

// down kills a process, and starts it after the duration of a fault.
func down(of target) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		process, err := of(ctx, c)
		if err != nil {
			return "", err
		}
		if err := errors.Join(process.Kill(), c.hold(ctx)); err != nil {
			return "", err
		}
		return "", process.Start(ctx)
	}
}

// restart kills a process, and starts it at once. The fault ends when it is ready.
func restart(of target) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		process, err := of(ctx, c)
		if err != nil {
			return "", err
		}
		return "", process.Restart(ctx)
	}
}

func pause(of target) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		process, err := of(ctx, c)
		if err != nil {
			return "", err
		}
		if err := process.Pause(); err != nil {
			return "", err
		}
		return "", errors.Join(c.hold(ctx), process.Continue())
	}
}

func replaceReplica(ctx context.Context, c *campaign) (string, error) {
	// At random, the hub may be down.
	return "", await.Poll(ctx, func(ctx context.Context) error {
		if err := c.Replicas[1].Terminate(ctx); err != nil {
			return err
		}
		return c.Replicas[1].Start(ctx)
	})
}

func start(ctx context.Context, p *localhub.Process) error {
	return p.Launch()
}
func resume(_ context.Context, p *localhub.Process) error { return p.Continue() }

// etcdMajority breaks the leader and another member.
func etcdMajority(breaks func(*localhub.Process) error, mends func(context.Context, *localhub.Process) error) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		first, err := c.Etcd.Leader(ctx)
		if err != nil {
			return "", err
		}
		members := []*localhub.EtcdMember{c.Etcd.Members[first], c.Etcd.Members[(first+1)%len(c.Etcd.Members)]}
		var errs []error
		for _, member := range members {
			errs = append(errs, breaks(member.Process))
		}
		errs = append(errs, c.hold(ctx))
		for _, member := range members {
			errs = append(errs, mends(ctx, member.Process))
		}
		return "", errors.Join(errs...)
	}
}

func killPostgres(ctx context.Context, c *campaign) (string, error) {
	if err := c.Postgres.Kill(); err != nil {
		return "", err
	}
	return "", c.Postgres.Start(ctx)
}

func stopPostgres(ctx context.Context, c *campaign) (string, error) {
	if err := c.Postgres.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	return "", errors.Join(c.hold(ctx), c.Postgres.Signal(syscall.SIGCONT))
}

// cut drops all packets between two hosts, in one or both directions.
func cut(a, b string, forth, back bool) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		from, to := c.Nodes[a], c.Nodes[b]
		c.Network.Set(from, to, network.Link{Cut: forth})
		c.Network.Set(to, from, network.Link{Cut: back})
		defer c.Network.SetBoth(from, to, network.Link{})
		return "", c.hold(ctx)
	}
}

func cutAll(a string, others ...string) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		for _, b := range others {
			c.Network.SetBoth(c.Nodes[a], c.Nodes[b], network.Link{Cut: true})
			defer c.Network.SetBoth(c.Nodes[a], c.Nodes[b], network.Link{})
		}
		return "", c.hold(ctx)
	}
}

func cutEtcdLeader(ctx context.Context, c *campaign) (string, error) { return isolate(ctx, c, true) }
func cutEtcdLeaderOut(ctx context.Context, c *campaign) (string, error) {
	return isolate(ctx, c, false)
}

// isolate cuts the leader of etcd from the other members. Its clients still reach it.
func isolate(ctx context.Context, c *campaign, both bool) (string, error) {
	leads, err := c.Etcd.Leader(ctx)
	if err != nil {
		return "", err
	}
	from := c.Nodes[fmt.Sprintf("etcd-%d", leads)]
	for i := range c.Etcd.Members {
		if to := c.Nodes[fmt.Sprintf("etcd-%d", i)]; i != leads {
			c.Network.Set(from, to, network.Link{Cut: true})
			c.Network.Set(to, from, network.Link{Cut: both})
			defer c.Network.SetBoth(from, to, network.Link{})
		}
	}
	return "", c.hold(ctx)
}

func degrade(a, b string) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		c.Network.SetBoth(c.Nodes[a], c.Nodes[b], network.Link{Loss: 0.05, Delay: 20 * time.Millisecond})
		defer c.Network.SetBoth(c.Nodes[a], c.Nodes[b], network.Link{})
		return "", c.hold(ctx)
	}
}

// diskBytes is the size of the disk of an etcd member. etcd reserves two files of 64 MB.
const diskBytes = 256 << 20

// compact removes all old revisions again and again, so that watches that are behind cannot continue.
func compact(ctx context.Context, c *campaign) (string, error) {
	client, err := c.Etcd.Client()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	for until := time.Now().Add(c.pause); time.Now().Before(until); {
		now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
		if err != nil {
			return "", err
		}
		// Without a write since the last compaction, there is nothing to compact.
		if _, err := client.Compact(ctx, now.Header.Revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return "", err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	return "", nil
}

// apiServiceDown removes all replicas, and deletes namespaces with ManifestWorks. Their deletion waits for the replicas,
// and nothing is lost or left over.
func apiServiceDown(ctx context.Context, c *campaign) (string, error) {
	namespaces := c.HubClient.CoreV1().Namespaces()
	var names []string
	for i := range 3 {
		name := framework.Unique(fmt.Sprintf("deleted-%d", i))
		if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return "", err
		}
		work := framework.ConfigMapWork("deleted")
		work.Namespace = name
		if _, err := c.OCM.WorkV1().ManifestWorks(name).Create(ctx, work, metav1.CreateOptions{}); err != nil {
			return "", err
		}
		names = append(names, name)
	}
	for _, replica := range c.Replicas {
		if err := replica.Terminate(ctx); err != nil {
			return "", err
		}
	}
	for _, name := range names {
		if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return "", err
		}
	}
	if err := sleep(ctx, c.outage); err != nil {
		return "", err
	}
	for _, name := range names {
		if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return "", fmt.Errorf("namespace %s with a ManifestWork, while the APIService is down: %w", name, err)
		}
	}
	for _, replica := range c.Replicas {
		if err := replica.Start(ctx); err != nil {
			return "", err
		}
	}
	began := time.Now()
	err := await.Poll(ctx, func(ctx context.Context) error {
		for _, name := range names {
			if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s is not gone: %w", name, err)
			}
			works, err := c.OCM.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
			if err != nil || len(works.Items) > 0 {
				return fmt.Errorf("ManifestWorks in the deleted namespace %s: %v, %w", name, works, err)
			}
		}
		return nil
	})
	return fmt.Sprintf("Three deleted namespaces are gone %.0f s after the replicas are back", time.Since(began).Seconds()), err
}

// shift changes the clock of a process.
func shift(of target, offset time.Duration) fault {
	return func(ctx context.Context, c *campaign) (string, error) {
		process, err := of(ctx, c)
		if err != nil {
			return "", err
		}
		if err := process.ShiftClock(offset); err != nil {
			return "", err
		}
		return "", errors.Join(c.hold(ctx), process.ShiftClock(0))
	}
}

// part returns the part of the hub that a row breaks, or "" if the row does not run at random.
func (r *row) part() string {
	if r.name == "cut-etcd-leader" || r.name == "cut-etcd-leader-out" || r.name == "lossy-etcd" {
		return "etcd"
	}
	part, _, _ := strings.Cut(r.name, "-")
	switch part {
	case "replica", "leader":
		return "server"
	case "etcd", "hub", "managed", "agent", "postgres", "cut", "lossy":
		return part
	default:
		return ""
	}
}

// random runs up to three faults of different parts at once, again and again. In between, it measures whether the
// processes grow.
func random(ctx context.Context, c *campaign) (string, error) {
	growth, err := newGrowth(c)
	if err != nil {
		return "", err
	}
	source := rand.New(rand.NewPCG(c.seed, 0))
	byPart := map[string][]row{}
	for _, r := range rows {
		// Replacing certificates and authorities requires that all other parts work.
		if part := r.part(); part != "" && !strings.Contains(r.name, "certificate") && !strings.Contains(r.name, "authority") {
			byPart[part] = append(byPart[part], r)
		}
	}
	parts := slices.Sorted(maps.Keys(byPart))
	faults := 0
	begun, next, step := time.Now(), time.Duration(0), c.random/8
	for elapsed := time.Duration(0); elapsed < c.random; elapsed = time.Since(begun) {
		if elapsed >= next {
			if err := growth.sample(ctx, next <= c.random/4); err != nil {
				return "", err
			}
			c.t.Logf("after %s: %s", elapsed.Round(time.Second), growth)
			next = (elapsed/step + 1) * step
		}
		source.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		var running sync.WaitGroup
		errs := make([]error, 1+source.IntN(3))
		for i := range errs {
			r := byPart[parts[i]][source.IntN(len(byPart[parts[i]]))]
			own := *c
			own.combined = true
			own.pause = time.Duration(1+source.IntN(10)) * time.Second
			faults++
			running.Go(func() {
				if _, err := r.run(ctx, &own); err != nil {
					errs[i] = fmt.Errorf("%s: %w", r.name, err)
				}
			})
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
		if err := c.whole(ctx); err != nil {
			return "", err
		}
	}
	var grown error
	// What the last faults leave, such as broken connections, ends by itself. A leak stays.
	err = await.Poll(ctx, func(ctx context.Context) error {
		if err := growth.sample(ctx, false); err != nil {
			return err
		}
		if c.full && c.random >= enough {
			grown = growth.check()
		}
		return grown
	})
	if grown != nil {
		// Not returned, so that the history of the row is checked too.
		c.t.Error(grown)
		err = nil
	}
	return fmt.Sprintf("%d faults. In the first quarter → at the end: %s", faults, growth), err
}
