package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/network"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// Replicas is the number of replicas and of etcd members of a Replicated hub.
const Replicas = 3

// ReplicatedOptions are the options of a Replicated hub.
type ReplicatedOptions struct {
	// Clusters are the names of the managed clusters.
	Clusters []string
	// Database is the URL of a PostgreSQL database for search. If it is empty, PostgreSQL runs on a host of its own.
	Database string
	// PreparePostgres is called with the empty directory of that PostgreSQL, if set.
	PreparePostgres func(directory string) error
	// AgentArgs are additional arguments of each agent.
	AgentArgs []string
	// EtcdDataDirs are the directories of the data of the etcd members, if set.
	EtcdDataDirs []string
}

// Replicated is a hub with several replicas of the server on an etcd cluster. Each replica, each etcd member, the
// hub, each managed cluster and each agent has a host of its own in a network that the test can break. The requests
// of the clients go through the aggregation layer of the hub, which chooses a replica from the endpoints of the
// Service.
type Replicated struct {
	*Fleet
	Network *network.Network
	// Nodes are the hosts by name: client, hub, etcd-0, replica-0, postgres, the name of a managed cluster, and
	// <cluster>-agent. Processes of the hub and of a managed cluster share a host with their etcd.
	Nodes    map[string]*network.Node
	Etcd     *localhub.EtcdCluster
	Replicas []*localhub.Replica
	// Administrator runs clusteradm on the host client.
	Administrator *localhub.Clusteradm
	// Postgres is the server of search, or nil if it belongs to the caller.
	Postgres *postgrestest.Server
}

// RequireRoot skips a test that only root can run: with network namespaces, or with programs of other users.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces, and programs of other users, require root")
	}
}

// StartReplicated starts a Replicated hub for one test.
func StartReplicated(t testing.TB, dir string, opts ReplicatedOptions) *Replicated {
	t.Helper()
	RequireRoot(t)
	UseSlots(t, 1+len(opts.Clusters))
	r := &Replicated{Network: network.New(), Nodes: map[string]*network.Node{}}
	KillLater(t, r.Network.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Administrator = &localhub.Clusteradm{Host: r.host(t, "client")}

	hub, err := localhub.NewCluster(localhub.ClusterOptions{
		Name: "hub", Dir: filepath.Join(dir, "hub"), NoFsync: true, Host: r.host(t, "hub"),
		APIServerArgs: []string{"--enable-aggregator-routing=true"},
		Controllers:   localhub.ReplicaControllers, ControllerArgs: localhub.ReplicaControllerArgs,
	})
	must(err)
	// As docs/storage.md recommends: by default, the hub notices only after 45 seconds that a replica hangs.
	hub.APIServer.Env = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=5", "HTTP2_PING_TIMEOUT_SECONDS=5"}
	KillLater(t, hub.Kill)
	r.Fleet = &Fleet{Fleet: &localhub.Fleet{Hub: hub}}

	var hosts []*localhub.Host
	for i := range Replicas {
		hosts = append(hosts, r.host(t, fmt.Sprintf("etcd-%d", i)))
	}
	r.Etcd, err = localhub.NewEtcdCluster(localhub.EtcdClusterOptions{Dir: filepath.Join(dir, "etcd"), Hosts: hosts, DataDirs: opts.EtcdDataDirs})
	must(err)
	StopLater(t, r.Etcd.Stop)

	for _, name := range opts.Clusters {
		member := &localhub.Member{}
		member.Cluster, err = localhub.NewCluster(localhub.ClusterOptions{Name: name, Dir: filepath.Join(dir, name), NoFsync: true, Host: r.host(t, name)})
		must(err)
		KillLater(t, member.Cluster.Kill)
		member.Agent, err = localhub.NewAgent(localhub.AgentOptions{
			Managed: member.Cluster, Dir: filepath.Join(dir, name, "agent"), Host: r.host(t, name+"-agent"), Args: opts.AgentArgs,
		})
		must(err)
		KillLater(t, member.Agent.Kill)
		r.Members = append(r.Members, member)
	}

	var starting errgroup.Group
	starting.Go(func() error { return hub.Start(t.Context()) })
	starting.Go(func() error { return r.Etcd.Start(t.Context()) })
	for _, member := range r.Members {
		starting.Go(func() error { return member.Cluster.Start(t.Context()) })
	}
	must(starting.Wait())
	invitation, err := r.Administrator.Init(t.Context(), hub)
	must(err)
	if opts.Database == "" {
		host := r.host(t, "postgres")
		r.Postgres = postgrestest.Own(t, &postgrestest.Host{Address: host.Address, Run: host.Run, Prepare: opts.PreparePostgres})
		opts.Database = r.Postgres.DSN
	}
	database := filepath.Join(dir, "database-url")
	must(os.WriteFile(database, []byte(opts.Database+"\n"), 0o600))
	for i := range Replicas {
		name := fmt.Sprintf("replica-%d", i)
		certs := filepath.Join(dir, name, "etcd-certs")
		must(r.Etcd.IssueClient(certs, time.Time{}))
		replica, err := localhub.NewReplica(localhub.APIServerOptions{
			Hub: hub, Name: name, Dir: filepath.Join(dir, name), PKIDir: filepath.Join(dir, "pki"), Host: r.host(t, name), Port: 10250,
			EtcdServers: r.Etcd.Endpoints, Granted: true,
			Args: slices.Concat(r.Etcd.ServerArgs(certs), invitation.ServerArgs, []string{"--search-engine=postgres", "--search-postgres-url-file=" + database, "--shutdown-delay-duration=5s"}),
		})
		must(err)
		StopLater(t, replica.Stop)
		r.Replicas = append(r.Replicas, replica)
	}
	for _, replica := range r.Replicas {
		starting.Go(func() error { return replica.Start(t.Context()) })
	}
	must(starting.Wait())
	must(r.Replicas[0].RegisterReplicas(t.Context()))
	must(r.Connect(t.Context()))
	for _, member := range r.Members {
		must(member.Agent.Join(t.Context(), r.Administrator, invitation))
		must(member.Agent.Launch(t.Context()))
		must(r.Administrator.Accept(t.Context(), hub, member.Name))
		must(member.Agent.WaitReady(t.Context()))
	}
	return r
}

// host adds a host to the network.
func (r *Replicated) host(t testing.TB, name string) *localhub.Host {
	t.Helper()
	node := Must(r.Network.Add(name))(t)
	r.Nodes[name] = node
	return &localhub.Host{Address: node.Address, Run: node.Do, Dial: r.Nodes["client"].DialContext, Local: node.DialContext}
}

// Clients returns clients of the hub with the identity of an administrator and connections of their own.
func (r *Replicated) Clients(t testing.TB) (*kubernetes.Clientset, *versioned.Clientset) {
	t.Helper()
	return Must(kubernetes.NewForConfig(r.Hub.AdminConfig()))(t), Must(versioned.NewForConfig(r.Hub.AdminConfig()))(t)
}

// Ready returns nil if the hub can send requests to each replica.
func (r *Replicated) Ready(ctx context.Context) error {
	for _, replica := range r.Replicas {
		if !replica.PodReady() {
			return fmt.Errorf("%s is not ready", replica.Node)
		}
	}
	endpoints, err := r.HubClient.DiscoveryV1().EndpointSlices(localhub.HubNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, slice := range endpoints.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) {
				ready++
			}
		}
	}
	if ready != len(r.Replicas) {
		return fmt.Errorf("ready endpoints = %d, want %d", ready, len(r.Replicas))
	}
	return nil
}
