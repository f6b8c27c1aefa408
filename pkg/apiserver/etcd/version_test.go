package etcd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// member reports the version of an etcd that cannot be built from the modules of this repository.
type member struct {
	pb.UnimplementedMaintenanceServer
	version string
}

// Status implements pb.MaintenanceServer.
func (m member) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: m.version}, nil
}

// serve starts the member, and returns its endpoint.
func (m member) serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "client")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, m)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}

// connect returns connections to a cluster that are closed when the test ends.
func connect(t *testing.T, members ...string) *Cluster {
	t.Helper()
	out, err := Connect(storagebackend.TransportConfig{ServerList: members}, prefix, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

func TestCheckVersions(t *testing.T) {
	for reported, accepted := range map[string]bool{
		"3.5.13": true, "3.6.0-rc.1": true, "4.0.0": true,
		"3.5.12": false, "3.5.13-rc.0": false, "3.4.31": false, "unknown": false,
	} {
		endpoint := member{version: reported}.serve(t)
		all, err := connect(t, endpoint).CheckVersions(t.Context())
		if !all {
			t.Fatal("CheckVersions() = false, want the version of every member")
		}
		if errors.As(err, new(UnusableError)) == accepted || !accepted && !strings.Contains(err.Error(), reported) {
			t.Errorf("CheckVersions() of an etcd %s = %v, want accepted %t", reported, err, accepted)
		}
	}
}

// TestCheckVersionsOfSilentMember checks that a server can start while a member is down.
func TestCheckVersionsOfSilentMember(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "data"))
	down := "unix://" + filepath.Join(t.TempDir(), "down")
	if all, err := connect(t, server.Endpoint(), down).CheckVersions(t.Context()); err != nil || all {
		t.Errorf("CheckVersions() = %t, %v, want false and no error", all, err)
	}
}
