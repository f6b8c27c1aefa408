package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// partSuffix ends the name of a snapshot that is not complete.
const partSuffix = ".part"

// SnapshotStatus describes a snapshot.
type SnapshotStatus struct {
	// Revision is the last revision of the data.
	Revision int64 `json:"revision"`
	// Keys is the number of keys.
	Keys int `json:"keys"`
	// SizeBytes is the size of the file, and SHA256 the hash of its data, which etcd has appended.
	SizeBytes int64  `json:"sizeBytes"`
	SHA256    string `json:"sha256"`
	// EtcdVersion is the version of the format of the data.
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// StoredVersions are the API versions in which objects may be stored, by resource. A server that
	// starts with the data must read them all.
	StoredVersions map[string][]string `json:"storedVersions,omitempty"`
	// Restored is the last restore before the snapshot, or nil.
	Restored *Mark `json:"restored,omitempty"`
}

// SaveSnapshot writes a consistent copy of the data in a directory to file. If a server runs on the
// directory, it serves the copy; the caller must be the same user on the same machine. Otherwise
// SaveSnapshot runs etcd for this time. It replaces an existing file only if overwrite is true. After an
// error or a crash, there is no file, or the previous one; a crash may leave file with the suffix .part,
// which the next call replaces.
func SaveSnapshot(ctx context.Context, dataDir, file string, overwrite bool) (*SnapshotStatus, error) {
	if _, err := os.Lstat(file); err == nil && !overwrite {
		return nil, fmt.Errorf("%s exists: choose another file, or use --overwrite", file)
	}
	part, err := os.OpenFile(file+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = part.Close() }() // an error after Sync changes nothing
	if err := syscall.Flock(int(part.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process is writing %s: %w", part.Name(), err)
	}
	status, err := savePart(ctx, dataDir, part)
	if err == nil {
		publish := os.Link // it fails if the file has appeared meanwhile
		if overwrite {
			publish = os.Rename
		}
		err = publish(part.Name(), file)
	}
	if err != nil || !overwrite {
		err = errors.Join(err, os.Remove(part.Name()))
	}
	if err != nil {
		return nil, err
	}
	return status, syncDir(filepath.Dir(file))
}

func savePart(ctx context.Context, dataDir string, part *os.File) (*SnapshotStatus, error) {
	if err := errors.Join(part.Truncate(0), part.Chmod(0o600)); err != nil {
		return nil, err
	}
	if err := StreamSnapshot(ctx, dataDir, part); err != nil {
		return nil, err
	}
	if err := part.Sync(); err != nil {
		return nil, err
	}
	// bbolt locks a file that it reads, shared.
	if err := syscall.Flock(int(part.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return nil, err
	}
	return ReadSnapshot(part.Name())
}

// StreamSnapshot writes a snapshot as SaveSnapshot does, and checks its hash. After an error, out may
// have received a part.
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
	check := newHashCheck()
	if _, err := io.Copy(io.MultiWriter(out, check), answer.Snapshot); err != nil {
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	if _, err := check.sum(); err != nil {
		return fmt.Errorf("reading the snapshot: %w", err)
	}
	return nil
}

// serving returns the endpoint of the etcd that runs on a data directory. If none does, it starts one,
// which stop stops.
func serving(ctx context.Context, dataDir string) (endpoint string, stop func(), err error) {
	if _, err := os.Stat(filepath.Join(dataDir, memberDir)); err != nil {
		return "", nil, fmt.Errorf("no data of an embedded etcd: %w", err)
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
	status := &SnapshotStatus{}
	var err error
	if status.SHA256, status.SizeBytes, err = checkFile(file); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", file, err)
	}
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", file, err)
	}
	err = db.View(status.read)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", file, err)
	}
	return status, nil
}

func (s *SnapshotStatus) read(tx *bbolt.Tx) error {
	for err := range tx.Check() {
		return fmt.Errorf("the database is damaged: %w", err)
	}
	if version := schema.ReadStorageVersionFromSnapshot(tx); version != nil {
		s.EtcdVersion = version.String()
	}
	revisions := tx.Bucket(schema.Key.Name())
	if revisions == nil {
		return errors.New("the database is not that of an etcd")
	}
	live := map[string]struct{}{}
	// own are the values of the keys that end like keys that the server writes for itself, whatever its prefix.
	own := map[string][]byte{}
	err := revisions.ForEach(func(k, v []byte) error {
		s.Revision = mvcc.BytesToRev(k).Main
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return fmt.Errorf("revision %d: %w", s.Revision, err)
		}
		key := string(kv.Key)
		if mvcc.IsTombstone(k) {
			delete(live, key)
			delete(own, key)
			return nil
		}
		if key == "" { // a restore raises the revision by a revision without key
			return nil
		}
		live[key] = struct{}{}
		if isRecord(key) || isMark(key) {
			own[key] = kv.Value
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Keys = len(live)
	for key, value := range own {
		if isObject(value) {
			continue
		}
		if isRecord(key) {
			var record versionRecord
			err = json.Unmarshal(value, &record)
			s.StoredVersions = record.Versions
		} else {
			s.Restored = &Mark{}
			err = json.Unmarshal(value, s.Restored)
		}
		if err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}
	return nil
}

// isObject reports whether a value is an object of an API, whose namespace and name users choose. Such a value contains a
// kind, or is no JSON. What the server writes for itself is JSON without a kind.
func isObject(value []byte) bool {
	var object metav1.TypeMeta
	return json.Unmarshal(value, &object) != nil || object.Kind != ""
}

// checkFile checks the hash at the end of a snapshot.
func checkFile(name string) (sum string, size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = file.Close() }() // it is only read
	check := newHashCheck()
	if size, err = io.Copy(check, file); err != nil {
		return "", 0, err
	}
	sum, err = check.sum()
	return sum, size, err
}

// hashCheck hashes what is written to it except its last bytes, which must be the hash.
type hashCheck struct {
	hash hash.Hash
	last []byte
}

func newHashCheck() *hashCheck { return &hashCheck{hash: sha256.New()} }

// Write implements io.Writer.
func (h *hashCheck) Write(p []byte) (int, error) {
	h.last = append(h.last, p...)
	if complete := len(h.last) - sha256.Size; complete > 0 {
		h.hash.Write(h.last[:complete])
		h.last = append(h.last[:0], h.last[complete:]...)
	}
	return len(p), nil
}

func (h *hashCheck) sum() (string, error) {
	if sum := h.hash.Sum(nil); !bytes.Equal(sum, h.last) {
		return "", fmt.Errorf("the SHA-256 hash of the data is %x, but it ends with %x: it is incomplete or damaged, or not a snapshot of etcd", sum, h.last)
	}
	return hex.EncodeToString(h.last), nil
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

func isMark(key string) bool { return strings.HasSuffix(key, markKey) }
