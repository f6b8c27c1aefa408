// Package etcd runs an embedded etcd with one member in the process of the server. It listens on a unix
// socket that only the user of the process can access.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/client/pkg/v3/logutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	memberName   = "hub-apiserver"
	startTimeout = time.Minute
	idFile       = "storage-id"
	socketFile   = "client"

	// maxSocketPath is a path length that every operating system supports for unix sockets.
	maxSocketPath = 100

	// catchUpEntries is the number of past writes in memory. A single member has no followers that need
	// them. 0 means the default of etcd.
	catchUpEntries = 10
	// snapshotCount is the maximum number of writes that etcd replays at startup.
	snapshotCount = 1000

	// electionMilliseconds is the maximum time until the member elects itself; etcd requires five ticks.
	electionMilliseconds = 100
	tickMilliseconds     = electionMilliseconds / 5

	// progressInterval is the interval of notifications of watches without events. It must be shorter than
	// --etcd-compaction-interval.
	progressInterval = 5 * time.Second

	// defragmentAtStartMegabytes is the free space above which a start defragments the database.
	defragmentAtStartMegabytes = 128
)

type Options struct {
	// DataDir is the directory of the data. Start creates it.
	DataDir string
	// QuotaBytes is the size of the database at which writes are refused.
	QuotaBytes int64
	Snapshots  Schedule
}

type Server struct {
	etcd      *embed.Etcd
	client    *clientv3.Client
	lock      *os.File
	socket    string
	tempDir   string // of the socket, if the path of the data directory is too long
	options   Options
	link      string // to the socket in tempDir, in the data directory
	storageID string
	// logLevel is the level of the log of etcd. It is above errors before the first write and during a stop, because etcd
	// then logs errors that are none: a missing storage version, and its own listeners.
	logLevel zap.AtomicLevel
}

// Start starts etcd and waits until it serves. It returns an error if it cannot open the data or another
// process uses it.
func Start(ctx context.Context, options Options) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(options.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	s := &Server{options: options, logLevel: zap.NewAtomicLevelAt(zap.PanicLevel)}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.lock, err = lock(ctx, options.DataDir); err != nil {
		return nil, err
	}
	if err := interrupted(options.DataDir); err != nil {
		return nil, err
	}
	if s.storageID, err = ReadStorageID(filepath.Join(options.DataDir, idFile)); err != nil {
		return nil, fmt.Errorf("reading the ID of the data: %w", err)
	}
	if err := s.placeSocket(options.DataDir); err != nil {
		return nil, fmt.Errorf("creating the directory of the socket: %w", err)
	}

	s.etcd, err = embed.StartEtcd(s.config(options))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", options.DataDir, err)
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		return nil, fmt.Errorf("starting: %w", err)
	case <-ctx.Done():
		return nil, fmt.Errorf("not ready within %s: %w", startTimeout, context.Cause(ctx))
	}
	s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, DialTimeout: startTimeout})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return s, nil
}

func (s *Server) config(options Options) *embed.Config {
	client := url.URL{Scheme: "unix", Path: s.socket}

	config := embed.NewConfig()
	config.Name = memberName
	config.Dir = options.DataDir
	config.ZapLoggerBuilder = s.setLogger
	// A single member must not listen for peers: every user of the machine could connect and write to
	// the log, because etcd opens the unix socket for peers in the abstract namespace without an owner.
	config.ListenPeerUrls = nil
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.InitialCluster = config.InitialClusterFromName(memberName)
	config.QuotaBackendBytes = options.QuotaBytes
	config.BootstrapDefragThresholdMegabytes = defragmentAtStartMegabytes
	config.StrictReconfigCheck = false
	// Without followers, the only effect of these is that the start takes less time.
	config.TickMs, config.ElectionMs = tickMilliseconds, electionMilliseconds
	// By default, etcd keeps 5,000 past writes of up to 1.5 MiB in memory for followers.
	config.SnapshotCatchUpEntries = catchUpEntries
	config.SnapshotCount = snapshotCount
	// The caches of resources that do not change learn the current revision from these notifications. Without them, the
	// check of a cache reads a revision that is compacted already.
	config.WatchProgressNotifyInterval = progressInterval
	// Tokens are for users of etcd, of which this one has none.
	config.AuthToken = ""
	return config
}

// setLogger makes etcd log to the standard error at the level of s.
func (s *Server) setLogger(config *embed.Config) error {
	settings := logutil.DefaultZapLoggerConfig
	settings.Level = s.logLevel
	logger, err := settings.Build()
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return embed.NewZapLoggerBuilder(logger)(config)
}

// Endpoint returns the URL for clients in this process.
func (s *Server) Endpoint() string { return "unix://" + s.socket }

// StorageID returns the ID of the data, which is constant for the lifetime of the data directory.
func (s *Server) StorageID() string { return s.storageID }

// Failed returns a channel of the error with which etcd stops, for example if it cannot write to disk.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Stop stops etcd after its writes are on disk. It may be called more than once.
func (s *Server) Stop() {
	if s.client != nil {
		if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			klog.Background().Error(err, "Failed to close the client of the embedded etcd")
		}
		s.client = nil
	}
	if s.etcd != nil {
		s.logLevel.SetLevel(zap.PanicLevel)
		s.etcd.Close()
		s.etcd = nil
	}
	if s.tempDir != "" {
		if err := errors.Join(os.Remove(s.link), os.RemoveAll(s.tempDir)); err != nil {
			klog.Background().Error(err, "Failed to remove the socket of the embedded etcd")
		}
		s.tempDir = ""
	}
	if s.lock != nil {
		// Closing releases the lock.
		if err := s.lock.Close(); err != nil {
			klog.Background().Error(err, "Failed to unlock the data directory of the embedded etcd")
		}
		s.lock = nil
	}
}

// placeSocket chooses the path of the socket in the data directory, where the next start replaces it after
// a crash. If that path is too long, the socket is in a temporary directory.
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
	// A process that saves a snapshot finds the socket in the data directory.
	s.link = filepath.Join(dataDir, socketFile)
	if err := os.Remove(s.link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if s.tempDir == "" {
		return nil
	}
	return os.Symlink(s.socket, s.link)
}

// ReadStorageID reads the ID of data from a file. If there is none, it creates one.
func ReadStorageID(path string) (string, error) {
	id, err := os.ReadFile(path)
	if err == nil && len(id) > 0 {
		return string(id), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	fresh := uuid.NewString()
	return fresh, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(fresh), 0o600))
}

const (
	lockFile   = "lock"
	lockPeriod = 100 * time.Millisecond
)

// lock locks the data directory until the file is closed or the process ends. Until ctx ends, it waits for
// another process that is stopping. etcd itself would wait forever and log nothing.
func lock(ctx context.Context, dataDir string) (file *os.File, err error) {
	waiting := false
	err = wait.PollUntilContextCancel(ctx, lockPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if file, err = tryLock(dataDir); file == nil && err == nil && !waiting {
			waiting = true
			klog.FromContext(ctx).Info("Waiting for another process to unlock the data directory", "directory", dataDir, "process", holder(dataDir))
		}
		return file != nil, err
	})
	switch {
	case err != nil && waiting:
		return nil, fmt.Errorf("locking the data directory: process %s is using %s", holder(dataDir), dataDir)
	case err != nil:
		return nil, err
	}
	if err := os.WriteFile(file.Name(), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), file.Close())
	}
	return file, nil
}

// tryLock locks the data directory without changing it, or returns nil if another process has locked it.
func tryLock(dataDir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dataDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, file.Close()
	}
	return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), file.Close())
}

// holder returns the process that has locked the data directory.
func holder(dataDir string) string {
	content, err := os.ReadFile(filepath.Join(dataDir, lockFile))
	if err != nil || len(content) == 0 {
		return "(unknown)"
	}
	return strings.TrimSpace(string(content))
}
