package framework

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// ServerRole is the ClusterRole of the server on the hub.
const ServerRole = "open-cluster-management:hub-apiserver"

// Argument returns the value of a flag in args. It fails the test if the flag is missing.
func Argument(t *testing.T, args []string, flag string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag); ok {
			return value
		}
	}
	t.Fatalf("arguments = %q, want one that begins with %s", args, flag)
	return ""
}

// OwnEtcd starts an etcd for one test, with its data and its log in a directory.
func OwnEtcd(t testing.TB, name, dir string) *localhub.Etcd {
	t.Helper()
	etcd := Must(localhub.NewEtcd(name, filepath.Join(dir, name), localhub.BinDir(), filepath.Join(dir, name+".log"), false))(t)
	StopLater(t, etcd.Stop)
	if err := etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return etcd
}

// NewServer returns a server for one test without starting it.
func NewServer(t testing.TB, opts localhub.APIServerOptions) *localhub.APIServer {
	t.Helper()
	server := Must(localhub.NewAPIServer(opts))(t)
	KillLater(t, server.Kill)
	return server
}

// OwnServer starts a server for one test.
func OwnServer(t testing.TB, opts localhub.APIServerOptions) *localhub.APIServer {
	t.Helper()
	server := NewServer(t, opts)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server
}

// Serve registers a running server with its hub, and returns both with the clients of an administrator.
func Serve(t testing.TB, hub *localhub.Cluster, server *localhub.APIServer) *Fleet {
	t.Helper()
	f := &Fleet{Fleet: &localhub.Fleet{Hub: hub, Server: server}}
	if err := server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Direct returns a client of an administrator that connects to a server directly, not through the hub.
func Direct(t testing.TB, server *localhub.APIServer) *versioned.Clientset {
	t.Helper()
	return Must(versioned.NewForConfig(Must(server.UserConfig("admin", "system:masters"))(t)))(t)
}

// StartServers starts a server for each set of flags. They share the data of the fleet's server.
// Only the fleet's server runs the controllers.
func (f *Fleet) StartServers(t *testing.T, flags ...[]string) []*localhub.APIServer {
	t.Helper()
	etcd := "unix://" + filepath.Join(Argument(t, f.Server.Args, "--data-dir="), "client")
	var starting errgroup.Group
	servers := make([]*localhub.APIServer, len(flags))
	for i, args := range flags {
		dir := filepath.Join(OwnDir(t), fmt.Sprintf("server-%d", i))
		servers[i] = NewServer(t, localhub.APIServerOptions{
			Hub: f.Hub, Name: fmt.Sprintf("server-%d", i), Dir: dir, Granted: true, EtcdServers: []string{etcd},
			Args: append([]string{"--search-engine=none"}, args...),
		})
		starting.Go(func() error { return servers[i].Start(t.Context()) })
	}
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	return servers
}
