package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	memberDir = "member"
	// restoreDir is the directory in which a restore prepares the data. It is in the data directory,
	// because that may be the root of a volume.
	restoreDir     = "restore.tmp"
	replacedPrefix = "replaced-"
	// revisionBump is added to the revision of a snapshot, so that the server never uses a revision again
	// that a client of the lost data has seen.
	revisionBump = 1_000_000_000
	// noQuota lets etcd open and write data of any size.
	noQuota = -1
	// lockPatience is how long a restore waits for a server that is stopping.
	lockPatience = 2 * time.Second
)

type RestoreOptions struct {
	// File is the snapshot, and DataDir the directory of the data.
	File, DataDir string
	Prefix        string
	// Replace moves existing data to a directory in DataDir. Without it, they are an error.
	Replace bool
}

// RestoreSnapshot creates a data directory from a snapshot, with a new ID, a higher revision, and a Mark.
// No server may run on the directory. After an error or a crash, the directory contains the previous
// data, or none; a server refuses to start if a restore into an empty directory was interrupted.
func RestoreSnapshot(ctx context.Context, options RestoreOptions) (*Mark, error) {
	status, err := ReadSnapshot(options.File)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	soon, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	held, err := lock(soon, options.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }() // closing releases the lock
	if err := vacant(options); err != nil {
		return nil, err
	}

	temp := filepath.Join(options.DataDir, restoreDir)
	if err := os.RemoveAll(temp); err != nil {
		return nil, err
	}
	mark := &Mark{ID: uuid.NewString(), Time: time.Now().UTC().Truncate(time.Second), Revision: status.Revision}
	if err := prepare(ctx, options, temp, mark); err != nil {
		return nil, errors.Join(fmt.Errorf("restoring %s: %w", options.File, err), os.RemoveAll(temp))
	}
	return mark, commit(options.DataDir, temp, mark)
}

// vacant returns an error if the data directory contains data that a restore must not replace, or files
// that are not those of a server.
func vacant(options RestoreOptions) error {
	entries, err := os.ReadDir(options.DataDir)
	if err != nil {
		return err
	}
	known := []string{lockFile, socketFile, idFile, restoreDir, "lost+found", "search", "snapshots"}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == memberDir && !options.Replace:
			return fmt.Errorf("%s contains data: restore into another directory, or allow to replace the data", options.DataDir)
		case name != memberDir && !slices.Contains(known, name) && !strings.HasPrefix(name, replacedPrefix):
			return fmt.Errorf("%s is not the data directory of a server: it contains %s", options.DataDir, name)
		}
	}
	return nil
}

// prepare restores a snapshot into a directory, and writes the mark with an etcd that runs on it, which
// also proves that etcd can open the data.
func prepare(ctx context.Context, options RestoreOptions, dir string, mark *Mark) error {
	config := embed.NewConfig()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: options.File, OutputDataDir: dir,
		Name: memberName, InitialCluster: config.InitialClusterFromName(memberName), InitialClusterToken: config.InitialClusterToken,
		PeerURLs:     []string{config.AdvertisePeerUrls[0].String()},
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return err
	}
	value, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	server, err := Start(ctx, Options{DataDir: dir, QuotaBytes: noQuota})
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// The snapshot may be that of a full database. The server raises the alarm again if it still is.
	if _, err := server.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return err
	}
	_, err = server.client.Put(ctx, MarkKey(options.Prefix), string(value))
	return err
}

// commit moves prepared data into a data directory. The rename of the directory of etcd is the moment at
// which the restore takes effect.
func commit(dataDir, temp string, mark *Mark) error {
	if err := errors.Join(syncDir(filepath.Join(temp, memberDir)), syncDir(temp)); err != nil {
		return err
	}
	member := filepath.Join(dataDir, memberDir)
	if _, err := os.Lstat(member); err == nil {
		replaced := filepath.Join(dataDir, replacedPrefix+mark.Time.Format("20060102T150405Z")+"-"+mark.ID[:8])
		if err := os.Mkdir(replaced, 0o700); err != nil {
			return err
		}
		if err := os.Rename(member, filepath.Join(replaced, memberDir)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dataDir, idFile), []byte(mark.ID), 0o600); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(temp, memberDir), member); err != nil {
		return err
	}
	return errors.Join(syncDir(dataDir), os.RemoveAll(temp))
}

// interrupted returns an error if a restore into an empty data directory did not finish. Without it, a
// server would start without data. A restore that left the previous data, or finished, has no effect.
func interrupted(dataDir string) error {
	temp := filepath.Join(dataDir, restoreDir)
	if _, err := os.Lstat(temp); err != nil {
		return nil //nolint:nilerr // there was no restore
	}
	if _, err := os.Lstat(filepath.Join(dataDir, memberDir)); err == nil {
		return os.RemoveAll(temp)
	}
	return fmt.Errorf("a restore into %s was interrupted: restore the snapshot again. To start an empty hub instead, which loses all objects, delete %s", dataDir, temp)
}

// ReadMark returns the mark of the data, or nil if they were not restored.
func (c *Cluster) ReadMark(ctx context.Context) (*Mark, error) {
	answer, err := c.Client.Get(ctx, MarkKey(c.Prefix))
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	mark := &Mark{}
	if err := json.Unmarshal(answer.Kvs[0].Value, mark); err != nil {
		return nil, fmt.Errorf("decoding %s of etcd: %w", answer.Kvs[0].Key, err)
	}
	if mark.ID == "" {
		return nil, fmt.Errorf("%s of etcd has no id", answer.Kvs[0].Key)
	}
	return mark, nil
}
