package localhub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Etcd is one etcd server on a Unix socket. A socket needs no port and no
// certificates, and only the user who started etcd can connect to it.
type Etcd struct {
	*Process
	// Endpoint is the address for etcd clients and for --etcd-servers.
	Endpoint string

	// socketDir has a short path, because the path of a socket has at most 107 bytes.
	socketDir string
}

// NewEtcd returns an etcd with its data in dir, without starting it. The name is
// used in errors. Without fsync, writes survive a kill of etcd but not a crash of
// the machine.
func NewEtcd(name, dir, binDir, logFile string, fsync bool) (*Etcd, error) {
	path, err := Binary(binDir, "etcd")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	e := &Etcd{}
	if e.socketDir, err = os.MkdirTemp("", "etcd-"); err != nil {
		return nil, err
	}
	client, peer := filepath.Join(e.socketDir, "client.sock"), filepath.Join(e.socketDir, "peer.sock")
	e.Endpoint = "unix://" + client
	e.Process = &Process{
		Name: name,
		Path: path,
		Args: []string{
			"--name=default",
			"--data-dir=" + filepath.Join(dir, "data"),
			"--listen-client-urls=" + e.Endpoint,
			"--listen-peer-urls=unix://" + peer,
			// An advertised URL must be host:port. It has no effect: there is one
			// member, and clients are configured with the endpoint.
			"--advertise-client-urls=http://localhost:2379",
			"--initial-advertise-peer-urls=http://localhost:2380",
			"--initial-cluster=default=http://localhost:2380",
			// A single member has no followers, and elects itself in less time.
			"--heartbeat-interval=20",
			"--election-timeout=100",
			"--log-level=warn",
		},
		LogFile: logFile,
		// The socket exists before etcd can serve requests. Clients of etcd retry.
		Ready: func(context.Context) error {
			_, err := os.Stat(client)
			return err
		},
		// A killed etcd does not remove its sockets, and Stop may have removed their directory.
		Prepare: func() error {
			return errors.Join(e.removeSockets(), os.MkdirAll(e.socketDir, 0o700))
		},
	}
	if !fsync {
		e.Args = append(e.Args, "--unsafe-no-fsync")
	}
	return e, nil
}

// Stop stops etcd like [Process.Stop] and removes its sockets.
func (e *Etcd) Stop(ctx context.Context) error {
	return errors.Join(e.Process.Stop(ctx), e.removeSockets())
}

// Kill kills etcd like [Process.Kill] and removes its sockets.
func (e *Etcd) Kill() error { return errors.Join(e.Process.Kill(), e.removeSockets()) }

func (e *Etcd) removeSockets() error { return os.RemoveAll(e.socketDir) }
