package framework

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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

// StartServers starts a server for each set of flags. They share the data of the fleet's server.
// Only the fleet's server runs the controllers.
func (f *Fleet) StartServers(t *testing.T, flags ...[]string) []*localhub.APIServer {
	t.Helper()
	etcd := "unix://" + filepath.Join(Argument(t, f.Server.Args, "--data-dir="), "client")
	var wg sync.WaitGroup
	servers, errs := make([]*localhub.APIServer, len(flags)), make([]error, len(flags))
	for i, args := range flags {
		dir := filepath.Join(OwnDir(t), fmt.Sprintf("server-%d", i))
		servers[i] = Must(localhub.NewAPIServer(localhub.APIServerOptions{
			Hub: f.Hub, Name: fmt.Sprintf("server-%d", i), Dir: dir, Granted: true, EtcdServers: []string{etcd},
			Args: append([]string{"--search-engine=none"}, args...),
		}))(t)
		KillLater(t, servers[i].Kill)
		wg.Go(func() { errs[i] = servers[i].Start(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return servers
}
