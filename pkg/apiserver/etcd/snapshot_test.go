package etcd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/component-base/metrics/testutil"
)

const prefix = "/registry/test"

func put(t *testing.T, server *Server, key, value string) int64 {
	t.Helper()
	answer, err := server.client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func value(t *testing.T, server *Server, key string) string {
	t.Helper()
	answer, err := server.client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

// saved returns a data directory with a stopped server, and a snapshot of it with the key a, but not b.
func saved(t *testing.T) (dataDir, file string, last int64) {
	t.Helper()
	dataDir, file = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "snapshot.db")
	server := start(t, dataDir)
	put(t, server, "z", "0")
	put(t, server, "a", "1")
	status, err := SaveSnapshot(t.Context(), dataDir, file, false)
	if err != nil {
		t.Fatal(err)
	}
	if status.Revision != 3 || status.Keys != 2 {
		t.Errorf("SaveSnapshot() = %+v, want 2 keys at revision 3", status)
	}
	last = put(t, server, "b", "2")
	server.Stop()
	return dataDir, file, last
}

func restore(t *testing.T, file, dataDir string) *Mark {
	t.Helper()
	mark, err := RestoreSnapshot(t.Context(), RestoreOptions{File: file, DataDir: dataDir, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// TestRestore checks that restored data have a new ID and newer revisions, and that watches from before end.
func TestRestore(t *testing.T) {
	dataDir, file, last := saved(t)
	before, err := ReadStorageID(filepath.Join(dataDir, idFile))
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "restored")
	mark := restore(t, file, target)

	server := start(t, target)
	if a, b := value(t, server, "a"), value(t, server, "b"); a != "1" || b != "" {
		t.Errorf("values after the restore = %q, %q, want those of the snapshot", a, b)
	}
	if server.StorageID() == before || server.StorageID() != mark.ID {
		t.Errorf("StorageID() = %s, want the new one %s", server.StorageID(), mark.ID)
	}
	if got, err := (&Cluster{Prefix: prefix, Client: server.client}).ReadMark(t.Context()); err != nil || *got != *mark {
		t.Errorf("ReadMark() = %v, %v, want %v", got, err, mark)
	}
	if revision := put(t, server, "c", "3"); revision <= last {
		t.Errorf("revision of a write = %d, want one above %d, which clients have seen", revision, last)
	}
	if _, err := server.client.Get(t.Context(), "a", clientv3.WithRev(last)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("Get() at revision %d of the lost data = %v, want ErrCompacted", last, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer := <-server.client.Watch(ctx, "a", clientv3.WithRev(last))
	if !errors.Is(answer.Err(), rpctypes.ErrCompacted) {
		t.Errorf("Watch() from revision %d of the lost data = %v, want ErrCompacted", last, answer.Err())
	}
}

func TestSaveOfAStoppedServer(t *testing.T) {
	dataDir, _, last := saved(t)
	status, err := SaveSnapshot(t.Context(), dataDir, filepath.Join(t.TempDir(), "stopped.db"), false)
	if err != nil || status.Revision != last {
		t.Errorf("SaveSnapshot() of a stopped server = %+v, %v, want revision %d", status, err, last)
	}
	if _, err := SaveSnapshot(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "none.db"), false); err == nil {
		t.Error("SaveSnapshot() of a directory without data = nil, want an error")
	}
}

// TestSaveWithTheSocketElsewhere saves from a server whose socket is in a temporary directory.
func TestSaveWithTheSocketElsewhere(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), strings.Repeat("a-path-too-long-for-a-socket/", 5))
	put(t, start(t, dataDir), "a", "1")
	if _, err := SaveSnapshot(t.Context(), dataDir, filepath.Join(t.TempDir(), "snapshot.db"), false); err != nil {
		t.Errorf("SaveSnapshot() = %v", err)
	}
}

func TestSaveKeepsExistingFiles(t *testing.T) {
	dataDir, file, last := saved(t)
	// A killed process leaves one of these. Others may read them.
	for _, part := range []string{file + partSuffix, file + partSuffix + "123"} {
		if err := os.WriteFile(part, []byte("a part"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := SaveSnapshot(t.Context(), dataDir, file, false); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("SaveSnapshot() to an existing file = %v, want a refusal", err)
	}
	if status, err := ReadSnapshot(file); err != nil || status.Revision == last {
		t.Errorf("the existing file = %+v, %v, want the first snapshot", status, err)
	}
	if _, err := SaveSnapshot(t.Context(), dataDir, file, true); err != nil {
		t.Fatal(err)
	}
	if status, err := ReadSnapshot(file); err != nil || status.Revision != last {
		t.Errorf("the overwritten file = %+v, %v, want revision %d", status, err, last)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file = %v, %v, want 0600", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("files = %v, %v, want the snapshot only", entries, err)
	}
}

// damage breaks the order of the keys in the database of a running etcd, at a key.
func damage(t *testing.T, dataDir, key string) {
	t.Helper()
	name := filepath.Join(dataDir, memberDir, "snap", "db")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; ; at += len(key) {
		next := bytes.Index(content[at:], []byte(key))
		if next < 0 {
			break
		}
		at += next
		// The key in the database is a revision of 17 bytes. The value begins with two bytes and the key in etcd.
		content[at-2-17] = 0xff
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotsOfDamagedData checks that a damaged snapshot gets no name, and does not count as a scheduled one.
func TestSnapshotsOfDamagedData(t *testing.T) {
	dataDir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "snapshot.db")
	server := start(t, dataDir)
	put(t, server, "damaged-later", "1")
	last := put(t, server, "a", "1")
	schedule := Schedule{Interval: time.Hour, Dir: filepath.Dir(file), Keep: 1}
	now := time.Now().UTC().Truncate(time.Second)
	if err := schedule.save(t.Context(), dataDir, now.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := SaveSnapshot(t.Context(), dataDir, file, false); err != nil {
		t.Fatal(err)
	}
	damage(t, dataDir, "damaged-later")
	if status, err := SaveSnapshot(t.Context(), dataDir, file, true); err == nil {
		t.Errorf("SaveSnapshot() of damaged data = %+v, want an error", status)
	}
	if status, err := ReadSnapshot(file); err != nil || status.Revision != last {
		t.Errorf("the file after a failed snapshot = %+v, %v, want the previous one at revision %d", status, err, last)
	}
	if err := schedule.save(t.Context(), dataDir, now); err == nil {
		t.Error("scheduled snapshot of damaged data = nil, want an error")
	}
	if at, err := schedule.observe(); err != nil || !at.Equal(now.Add(-2*time.Hour)) {
		t.Errorf("observe() after a failed snapshot = %v, %v, want the time of the previous one", at, err)
	}
	if entries, err := os.ReadDir(schedule.Dir); err != nil || len(entries) != 2 {
		t.Errorf("files after failed snapshots = %v, %v, want both good ones", entries, err)
	}
}

func TestDamagedSnapshots(t *testing.T) {
	_, file, _ := saved(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(content)
	flipped[len(flipped)/2] ^= 1
	for name, damaged := range map[string][]byte{
		"changed": flipped, "cut": content[:len(content)-4096], "without hash": content[:len(content)-32], "empty": nil,
	} {
		path := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSnapshot(path); err == nil || !strings.Contains(err.Error(), "hash") {
			t.Errorf("ReadSnapshot() of a snapshot that is %s = %v, want an error about the hash", name, err)
		}
		target := filepath.Join(t.TempDir(), "data")
		if _, err := RestoreSnapshot(t.Context(), RestoreOptions{File: path, DataDir: target}); err == nil || !strings.Contains(err.Error(), "hash") {
			t.Errorf("RestoreSnapshot() of a snapshot that is %s = %v, want an error about the hash", name, err)
		}
		if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("data directory after a refused restore: %v, want none", err)
		}
	}
}

func TestRestoreRefusesOtherDirectories(t *testing.T) {
	dataDir, file, _ := saved(t)
	if _, err := RestoreSnapshot(t.Context(), RestoreOptions{File: file, DataDir: dataDir}); err == nil || !strings.Contains(err.Error(), "contains data") {
		t.Errorf("RestoreSnapshot() into existing data = %v, want a refusal", err)
	}
	server := start(t, dataDir)
	_, err := RestoreSnapshot(t.Context(), RestoreOptions{File: file, DataDir: dataDir, Replace: true})
	if err == nil || !strings.Contains(err.Error(), "is using") {
		t.Errorf("RestoreSnapshot() while a server runs = %v, want a refusal", err)
	}
	if value(t, server, "b") != "2" {
		t.Error("the running server has lost data")
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreSnapshot(t.Context(), RestoreOptions{File: file, DataDir: other, Replace: true}); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("RestoreSnapshot() into a directory with other files = %v, want a refusal that names them", err)
	}
}

func TestRestoreReplaces(t *testing.T) {
	dataDir, file, _ := saved(t)
	if _, err := RestoreSnapshot(t.Context(), RestoreOptions{File: file, DataDir: dataDir, Replace: true}); err != nil {
		t.Fatal(err)
	}
	server := start(t, dataDir)
	if a, b := value(t, server, "a"), value(t, server, "b"); a != "1" || b != "" {
		t.Errorf("values after the restore = %q, %q, want those of the snapshot", a, b)
	}
	server.Stop()
	replaced, err := filepath.Glob(filepath.Join(dataDir, replacedPrefix+"*"))
	if err != nil || len(replaced) != 1 {
		t.Fatalf("replaced data = %v, %v, want one directory", replaced, err)
	}
	if b := value(t, start(t, replaced[0]), "b"); b != "2" {
		t.Errorf("value in the replaced data = %q, want 2", b)
	}
}

// TestInterruptedRestore checks that a server does not start without data after a restore was killed.
func TestInterruptedRestore(t *testing.T) {
	dataDir, file, _ := saved(t)
	empty := filepath.Join(t.TempDir(), "data")
	for _, dir := range []string{empty, dataDir} {
		if err := os.MkdirAll(filepath.Join(dir, restoreDir, memberDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Start(t.Context(), Options{DataDir: empty, QuotaBytes: quotaBytes}); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("Start() after an interrupted restore = %v, want an error", err)
	}
	if b := value(t, start(t, dataDir), "b"); b != "2" {
		t.Errorf("value after a restore that did not reach the previous data = %q, want 2", b)
	}
	restore(t, file, empty)
	if a := value(t, start(t, empty), "a"); a != "1" {
		t.Errorf("value after the second restore = %q, want 1", a)
	}
}

// TestSchedule checks that scheduled snapshots replace the oldest ones, and that other files stay.
func TestSchedule(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	put(t, start(t, dataDir), "a", "1")
	schedule := Schedule{Interval: time.Hour, Dir: filepath.Join(t.TempDir(), "snapshots"), Keep: 2}
	if last, err := schedule.observe(); err != nil || !last.IsZero() {
		t.Fatalf("observe() without snapshots = %v, %v, want no time", last, err)
	}
	for _, name := range []string{"keep-me.db", newSnapshot + partSuffix + "123"} {
		if err := os.WriteFile(filepath.Join(schedule.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	noon := time.Now().UTC().Truncate(time.Second).Add(-12 * time.Hour)
	for hour := range 4 {
		if err := schedule.save(t.Context(), dataDir, noon.Add(time.Duration(hour)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	last, err := schedule.observe()
	if want := noon.Add(3 * time.Hour); err != nil || !last.Equal(want) {
		t.Errorf("observe() = %v, %v, want %v", last, err, want)
	}
	entries, err := os.ReadDir(schedule.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want := []string{
		"hub-apiserver-" + noon.Add(2*time.Hour).Format(snapshotTime) + ".db",
		"hub-apiserver-" + noon.Add(3*time.Hour).Format(snapshotTime) + ".db", "keep-me.db",
	}
	if !slices.Equal(names, want) {
		t.Errorf("files = %v, want %v", names, want)
	}
	if _, err := ReadSnapshot(filepath.Join(schedule.Dir, names[1])); err != nil {
		t.Error(err)
	}
}

// TestScheduleAfterClockWasAhead checks that new snapshots replace those with a time in the future.
func TestScheduleAfterClockWasAhead(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	put(t, start(t, dataDir), "a", "1")
	schedule := Schedule{Interval: time.Hour, Dir: t.TempDir(), Keep: 2}
	now := time.Now().UTC().Truncate(time.Second)
	file := func(at time.Time) string { return filepath.Join(schedule.Dir, nameAt(at)) }
	later := []time.Time{now.Add(24 * time.Hour), now.Add(48 * time.Hour)}
	for _, at := range later {
		if err := os.WriteFile(file(at), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for modified, want := range map[time.Time]time.Time{now.Add(-time.Minute): now.Add(-time.Minute), later[1]: {}} {
		if err := os.Chtimes(file(later[1]), modified, modified); err != nil {
			t.Fatal(err)
		}
		if got, err := schedule.observe(); err != nil || !got.Equal(want) {
			t.Errorf("observe() of snapshots of the future that were modified at %s = %v, %v, want %v", modified, got, err, want)
		}
	}
	var want []string
	for _, at := range []time.Time{now.Add(-2 * time.Hour), now.Add(-time.Hour)} {
		if err := schedule.save(t.Context(), dataDir, at); err != nil {
			t.Fatal(err)
		}
		want = append(want, nameAt(at))
		if got, err := schedule.observe(); err != nil || !got.Equal(at) {
			t.Errorf("observe() after a snapshot at %s = %v, %v, want its time", at, got, err)
		}
	}
	if got, err := schedule.list(now); err != nil || !slices.Equal(got, want) {
		t.Errorf("snapshots = %v, %v, want the new ones %v", got, err, want)
	}
}

// TestFailedSnapshotIsRetried checks that a failed snapshot is tried again after a minute, later after up to an hour.
func TestFailedSnapshotIsRetried(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failures := func() float64 {
		t.Helper()
		value, err := testutil.GetCounterMetricValue(failuresCounter)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	before := failures()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		server := &Server{options: Options{Snapshots: Schedule{Interval: 24 * time.Hour, Dir: filepath.Join(file, "snapshots"), Keep: 1}}}
		go server.SaveSnapshots(ctx)
		synctest.Wait()
		for i, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			began, longest := time.Now(), minutes*time.Minute
			for failures()-before == float64(i+1) && time.Since(began) <= longest {
				time.Sleep(time.Second)
			}
			// The loop spreads its retries.
			if took := time.Since(began); took < longest*2/3-time.Second || took > longest {
				t.Errorf("delay %d = %s, want %s to %s", i, took, longest*2/3, longest)
			}
		}
		cancel()
	})
}
