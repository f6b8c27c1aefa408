//go:build skew

package skew

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// release is a directory with the programs of a release.
type release string

// current is this version, and previous the previous release.
var (
	current  = release(localhub.BinDir())
	previous = release(filepath.Join(localhub.BinDir(), "previous"))
)

// combination names the release of each program.
type combination struct {
	server, agent, clusteradm release
}

// programs returns a directory with the programs of a combination and of a hub.
func (c combination) programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from := map[string]release{
		"apiserver": c.server, "agent": c.agent, "clusteradm": c.clusteradm,
		"etcd": current, "kube-apiserver": current, "kube-controller-manager": current, "kubectl": current,
	}
	for name, release := range from {
		path := framework.Must(localhub.Binary(string(release), name))(t)
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fleet is a hub with one managed cluster.
type fleet struct {
	*framework.Fleet
	adm *localhub.Clusteradm
}

// start starts a combination. The cluster joins the hub and is accepted with clusteradm.
func start(t *testing.T, c combination) *fleet {
	t.Helper()
	dir := c.programs(t)
	f := framework.OwnFleet(t, localhub.FleetOptions{
		BinDir: dir, KubeBinDir: string(current), Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration,
	})
	return &fleet{Fleet: f, adm: &localhub.Clusteradm{BinDir: dir}}
}

// replaceServer replaces the server, on the same data, and the manifests on the hub.
func (f *fleet) replaceServer(t *testing.T, by release) *localhub.Invitation {
	t.Helper()
	f.adm = &localhub.Clusteradm{BinDir: string(by)}
	invitation := framework.Must(f.adm.Init(t.Context(), f.Hub))(t)
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Server.Path = framework.Must(localhub.Binary(string(by), "apiserver"))(t)
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return invitation
}

// replaceAgent replaces the agent and the manifests on its cluster. The agent keeps its identity.
func (f *fleet) replaceAgent(t *testing.T, by release, invitation *localhub.Invitation) {
	t.Helper()
	agent := f.Members[0].Agent
	if err := agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent.Path = framework.Must(localhub.Binary(string(by), "agent"))(t)
	if err := agent.Join(t.Context(), &localhub.Clusteradm{BinDir: string(by)}, invitation); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// leave removes the cluster from the hub, and checks that nothing of it is left.
func (f *fleet) leave(t *testing.T, objects ...*objects) {
	t.Helper()
	if _, err := f.adm.Run(t.Context(), f.Members[0].Cluster, "unjoin", "--cluster-name", framework.Cluster1,
		"--agent-namespace", localhub.AgentNamespace, "--timeout=2m"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "nothing of the cluster is left on the hub and on the cluster", func(ctx context.Context) error {
		var lookups []error
		_, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, framework.Cluster1, getOptions)
		lookups = append(lookups, err)
		_, err = f.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, framework.Cluster1, getOptions)
		lookups = append(lookups, err)
		_, err = f.HubClient.CoreV1().Namespaces().Get(ctx, framework.Cluster1, getOptions)
		lookups = append(lookups, err)
		for _, o := range objects {
			_, err = f.ManagedClient.CoreV1().ConfigMaps("default").Get(ctx, o.name, getOptions)
			lookups = append(lookups, err)
			_, err = f.ManagedClient.RbacV1().Roles("default").Get(ctx, o.name, getOptions)
			lookups = append(lookups, err)
		}
		return framework.Gone(lookups...)
	})
}
