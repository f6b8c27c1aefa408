package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// partSuffix follows the name of a snapshot that is not complete. A number follows it.
const partSuffix = ".part"

// SnapshotStatus describes a snapshot.
type SnapshotStatus struct {
	Revision int64 `json:"revision"`
	Keys     int   `json:"keys"`
	// SizeBytes is the size of the database, and SHA256 its hash, which etcd has appended.
	SizeBytes int64  `json:"sizeBytes"`
	SHA256    string `json:"sha256"`
	// EtcdVersion is the version of the format of the data.
	EtcdVersion string `json:"etcdVersion,omitempty"`
}

// SaveSnapshot writes a consistent copy of the data in a directory to file, with mode 0600. If a server runs on the
// directory, it serves the copy; the caller must be the same user on the same machine. Otherwise
// SaveSnapshot runs etcd for this time. It replaces an existing file only if overwrite is true. The copy gets its name after
// it is checked; a killed process leaves a file whose name continues with partSuffix, which the next call deletes.
func SaveSnapshot(ctx context.Context, dataDir, file string, overwrite bool) (*SnapshotStatus, error) {
	if _, err := os.Lstat(file); err == nil && !overwrite {
		return nil, fmt.Errorf("%s exists: choose another file, or use --overwrite", file)
	}
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)
	if err := removeParts(dir, name+partSuffix); err != nil {
		return nil, err
	}
	// The name is new, so no other process writes the file, and nobody else may open it.
	part, err := os.CreateTemp(dir, name+partSuffix+"*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(part.Name()) }() // the next call removes it
	if err := errors.Join(StreamSnapshot(ctx, dataDir, part), part.Sync(), part.Close()); err != nil {
		return nil, err
	}
	status, err := ReadSnapshot(part.Name())
	if err != nil {
		return nil, err
	}
	if !overwrite {
		// Another process may have created the file since. Not every file system has the hard links that notice it.
		reserved, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		_ = reserved.Close() // nothing was written
	}
	if err := os.Rename(part.Name(), file); err != nil {
		if !overwrite {
			err = errors.Join(err, os.Remove(file))
		}
		return nil, err
	}
	return status, syncDir(dir)
}

// removeParts removes the files in a directory that killed processes have left.
func removeParts(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if number, ours := strings.CutPrefix(entry.Name(), prefix); ours && strings.Trim(number, "0123456789") == "" {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// StreamSnapshot writes a snapshot as SaveSnapshot does, without checking it. After an error, out may have received a part.
func StreamSnapshot(ctx context.Context, dataDir string, out io.Writer) error {
	endpoint, stop, err := serving(ctx, dataDir)
	if err != nil {
		return err
	}
	defer stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: startTimeout, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	defer func() { _ = client.Close() }() // its only error is that ctx has ended
	answer, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return fmt.Errorf("requesting a snapshot: %w", err)
	}
	defer func() { _ = answer.Snapshot.Close() }()
	if _, err := io.Copy(out, answer.Snapshot); err != nil {
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	return nil
}

// serving returns the URL of the etcd that runs on a data directory. If none does, it starts one, which stop stops.
func serving(ctx context.Context, dataDir string) (endpoint string, stop func(), err error) {
	if _, err := os.Stat(filepath.Join(dataDir, memberDir)); err != nil {
		return "", nil, fmt.Errorf("--data-dir: no data of an embedded etcd: %w", err)
	}
	running, err := tryLock(dataDir)
	if err != nil {
		return "", nil, err
	}
	if running == nil {
		socket, err := filepath.Abs(filepath.Join(dataDir, socketFile))
		if err != nil {
			return "", nil, err
		}
		if elsewhere, err := os.Readlink(socket); err == nil {
			socket = elsewhere
		}
		return "unix://" + socket, func() {}, nil
	}
	if err := running.Close(); err != nil {
		return "", nil, err
	}
	server, err := Start(ctx, Options{DataDir: dataDir, QuotaBytes: noQuota})
	if err != nil {
		return "", nil, err
	}
	return server.Endpoint(), server.Stop, nil
}

// ReadSnapshot checks the hash and the structure of a snapshot and describes it.
func ReadSnapshot(file string) (*SnapshotStatus, error) {
	sum, err := checkHash(file)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", file, err)
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", file, err)
	}
	return &SnapshotStatus{
		Revision: status.Revision, Keys: status.TotalKey, SizeBytes: status.TotalSize, SHA256: sum, EtcdVersion: status.Version,
	}, nil
}

// checkHash returns the hash at the end of a snapshot, or an error if it is not that of the data before it. etcd checks it
// only when it restores a snapshot.
func checkHash(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it is only read
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, file, max(0, info.Size()-sha256.Size)); err != nil {
		return "", err
	}
	end, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	if sum := hash.Sum(nil); !bytes.Equal(sum, end) {
		return "", fmt.Errorf("the SHA-256 hash of the data is %x, but it ends with %x: it is incomplete or damaged, or not a snapshot of etcd", sum, end)
	}
	return fmt.Sprintf("%x", end), nil
}

func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// Mark is the mark of data that were restored from a snapshot. Agents keep objects that such data do not
// contain until an administrator confirms the restore.
type Mark struct {
	// ID identifies the restore.
	ID string `json:"id"`
	// Time is when the data were restored, and Revision the last revision of the snapshot.
	Time     time.Time `json:"time"`
	Revision int64     `json:"revision,omitempty"`
}

const markKey = "/restores/last"

// MarkKey returns the key of the mark in etcd below the prefix of a server.
func MarkKey(prefix string) string { return path.Join("/", prefix) + markKey }
