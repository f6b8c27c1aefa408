// Package etcd runs the etcd of a server that was given none: one member inside
// the server's process, on a unix socket that only its user can reach, with its
// data in a directory of its own.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/klog/v2"
)

const (
	memberName   = "hub-apiserver"
	startTimeout = time.Minute
	idFile       = "storage-id"
	socketFile   = "client"

	// maxSocketPath is how long the path of a unix socket may be, on every system.
	maxSocketPath = 100

	// catchUpEntries is how many past writes are kept in memory: a single member has no
	// followers. 0 would stand for etcd's default.
	catchUpEntries = 10
	// snapshotCount is how many writes are read again at a start, at most.
	snapshotCount = 1000

	// defragmentAtStartMegabytes is the free space in the database file from
	// which it is rewritten before the server starts.
	defragmentAtStartMegabytes = 128
)

// Options say how the embedded etcd runs.
type Options struct {
	// DataDir is the directory of the data; it is created when missing.
	DataDir string
	// QuotaBytes is the size of the database at which writes are refused.
	QuotaBytes int64
}

// Server is a running etcd.
type Server struct {
	etcd      *embed.Etcd
	client    *clientv3.Client
	lock      *os.File
	socket    string
	tempDir   string // of the socket, where the data directory's path is too long for one
	storageID string
}

// Start runs etcd and waits until it serves. It fails, naming the reason, when
// the data cannot be opened or another process goes on using it.
func Start(ctx context.Context, options Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(options.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	s := &Server{}
	var err error
	if s.lock, err = lock(ctx, options.DataDir); err != nil {
		return nil, err
	}
	if s.storageID, err = ReadStorageID(filepath.Join(options.DataDir, idFile)); err != nil {
		s.Stop()
		return nil, fmt.Errorf("identity of the data: %w", err)
	}
	if err := s.placeSocket(options.DataDir); err != nil {
		s.Stop()
		return nil, fmt.Errorf("place for the socket: %w", err)
	}

	s.etcd, err = embed.StartEtcd(s.config(options))
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("opening %s: %w", options.DataDir, err)
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		s.Stop()
		return nil, fmt.Errorf("starting: %w", err)
	case <-ctx.Done():
		s.Stop()
		return nil, fmt.Errorf("not ready within %s: %w", startTimeout, context.Cause(ctx))
	}
	s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, DialTimeout: startTimeout})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return s, nil
}

func (s *Server) config(options Options) *embed.Config {
	client := url.URL{Scheme: "unix", Path: s.socket}

	config := embed.NewConfig()
	config.Name = memberName
	config.Dir = options.DataDir
	// A single member has no peers. Were it to listen for some, whoever can connect
	// could write to its log; etcd opens a unix socket for peers in the abstract
	// namespace, where it has no owner.
	config.ListenPeerUrls = nil
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.InitialCluster = config.InitialClusterFromName(memberName)
	config.QuotaBackendBytes = options.QuotaBytes
	config.BootstrapDefragThresholdMegabytes = defragmentAtStartMegabytes
	config.StrictReconfigCheck = false
	// etcd keeps that many past writes in memory for followers that lag behind, by default
	// 5,000 of up to 1.5 MiB each, and reads all since the last snapshot at a start.
	config.SnapshotCatchUpEntries = catchUpEntries
	config.SnapshotCount = snapshotCount
	config.Logger = "zap"
	config.LogLevel = "warn"
	config.LogOutputs = []string{"stderr"}
	return config
}

// Endpoint is the URL that clients in this process connect to.
func (s *Server) Endpoint() string { return "unix://" + s.socket }

// StorageID names the data: it stays the same for as long as the data directory lives.
func (s *Server) StorageID() string { return s.storageID }

// Failed delivers the error with which etcd ends by itself, such as a disk that
// cannot be written.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Stop closes etcd once what is under way is on disk. It is safe to call more than once.
func (s *Server) Stop() {
	if s.client != nil {
		if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			klog.Background().Error(err, "closing the client of the embedded etcd")
		}
		s.client = nil
	}
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
	if s.tempDir != "" {
		if err := os.RemoveAll(s.tempDir); err != nil {
			klog.Background().Error(err, "removing the socket of the embedded etcd")
		}
		s.tempDir = ""
	}
	if s.lock != nil {
		// Closing releases the lock.
		if err := s.lock.Close(); err != nil {
			klog.Background().Error(err, "releasing the data directory of the embedded etcd")
		}
		s.lock = nil
	}
}

// placeSocket puts the socket beside the data, where a later start replaces one
// that a crash left behind. A path that is too long for it gets a temporary directory.
func (s *Server) placeSocket(dataDir string) error {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if len(filepath.Join(dir, socketFile)) > maxSocketPath {
		if dir, err = os.MkdirTemp("", "hub-etcd-"); err != nil {
			return err
		}
		s.tempDir = dir
	}
	s.socket = filepath.Join(dir, socketFile)
	return nil
}

// ReadStorageID reads the name of some data from a file, and makes one if there is none.
func ReadStorageID(path string) (string, error) {
	id, err := os.ReadFile(path)
	if err == nil && len(id) > 0 {
		return string(id), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	fresh := uuid.NewString()
	return fresh, os.WriteFile(path, []byte(fresh), 0o600)
}
