package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	writers = 4
	// kills is the number of commands that are killed at random times.
	kills = 12
	// bulk is the size of the database in MiB, so that commands take long enough to be killed.
	bulk = 24
)

// load creates ManifestWorks until it is stopped, and records those that the server has acknowledged.
type load struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	acked sets.Set[string]
}

func startLoad(t *testing.T, f *framework.Fleet) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel, acked: sets.New[string]()}
	t.Cleanup(l.end)
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	for writer := range writers {
		l.running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("load-%d-%d", writer, i)
				if _, err := works.Create(ctx, framework.ConfigMapWork(name), metav1.CreateOptions{}); err != nil {
					continue // not acknowledged
				}
				l.mu.Lock()
				l.acked.Insert(name)
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

func (l *load) acknowledged() sets.Set[string] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked.Clone()
}

// TestSnapshots saves snapshots of a server under load, kills commands at random times, and restores.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	scheduled := filepath.Join(t.TempDir(), "scheduled")
	f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{
		"--namespace-quota-bytes=manifestworks=0", "--namespace-quota-objects=manifestworks=0",
		"--snapshot-interval=1m", "--snapshot-dir=" + scheduled, "--snapshot-keep=1",
	}})
	if err := framework.MakeNamespace(t.Context(), f.HubClient, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	fill(t, f)
	data := dataDir(t, f)
	first := newest(t, scheduled, "")

	writes := startLoad(t, f)
	framework.Eventually(t, "the server acknowledges writes", func(context.Context) error {
		if n := writes.acknowledged().Len(); n < 20 {
			return fmt.Errorf("%d writes are acknowledged", n)
		}
		return nil
	})
	before := writes.acknowledged()
	file := snapshotFile(t, "loaded")
	began := time.Now()
	status := framework.Must(save(t.Context(), data, file))(t)
	took := time.Since(began)
	after := writes.acknowledged()
	if after.Len() == before.Len() {
		t.Errorf("writes during a snapshot of %s = 0, want at least one", took)
	}
	if status.SizeBytes < bulk<<20 {
		t.Errorf("status = %+v, want at least %d MiB", status, bulk)
	}

	killSaves(t, data, took)
	writes.end()
	if _, err := save(t.Context(), data, file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("save to an existing file = %v, want a refusal", err)
	}
	if _, err := snapshot(t.Context(), "restore", file, "--data-dir="+data, "--replace"); err == nil || !strings.Contains(err.Error(), "is using") {
		t.Errorf("restore while the server runs = %v, want a refusal", err)
	}
	killRestores(t, file, status.Revision)

	second := newest(t, scheduled, first)
	framework.Eventually(t, "the first scheduled snapshot is deleted", func(context.Context) error {
		_, err := os.Stat(first)
		if err == nil {
			return fmt.Errorf("%s exists", first)
		}
		return nil
	})
	framework.Must(snapshot(t.Context(), "status", second))(t)
	restore(t, f, file)
	list := framework.Must(f.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	restored := sets.New[string]()
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "load-") {
			restored.Insert(list.Items[i].Name)
		}
	}
	if lost := before.Difference(restored); lost.Len() > 0 {
		t.Errorf("%d writes that were acknowledged before the snapshot are not restored, such as %v", lost.Len(), sets.List(lost)[0])
	}
	// Each writer creates one object after the other, so a consistent snapshot has no gaps.
	for writer := range writers {
		count := 0
		for restored.Has(fmt.Sprintf("load-%d-%d", writer, count)) {
			count++
		}
		for name := range restored {
			var w, i int
			if _, err := fmt.Sscanf(name, "load-%d-%d", &w, &i); err == nil && w == writer && i > count && after.Has(fmt.Sprintf("load-%d-%d", writer, count)) {
				t.Errorf("the snapshot contains %s, but not the earlier load-%d-%d", name, writer, count)
			}
		}
	}
}

// newest waits for a scheduled snapshot after another one, and returns its path.
func newest(t *testing.T, dir, after string) string {
	t.Helper()
	var found string
	framework.Eventually(t, "the server has saved a scheduled snapshot", func(context.Context) error {
		files, err := filepath.Glob(filepath.Join(dir, "hub-apiserver-*.db"))
		if err == nil && (len(files) == 0 || files[len(files)-1] == after) {
			err = fmt.Errorf("files = %v", files)
		}
		if err == nil {
			found = files[len(files)-1]
		}
		return err
	})
	return found
}

// fill makes the database large.
func fill(t *testing.T, f *framework.Fleet) {
	t.Helper()
	const size = 256 << 10
	for i := range bulk << 20 / size {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte('a' + rand.IntN(26))
		}
		name := fmt.Sprintf("bulk-%d", i)
		work := framework.ConfigMapWork(name, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"more-%s","namespace":"default"},"data":{"value":%q}}`, name, value))
		if _, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// killSaves kills save at random times. The file must not exist, or be complete.
func killSaves(t *testing.T, data string, took time.Duration) {
	t.Helper()
	killed := 0
	file := snapshotFile(t, "killed")
	for i := range kills {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if killAfter(t, took*time.Duration(i+1)/(kills-2), "save", file, "--data-dir="+data) {
			killed++
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := snapshot(t.Context(), "status", file); err != nil {
			t.Errorf("snapshot of a killed process: %v", err)
		}
	}
	if _, err := save(t.Context(), data, file, "--overwrite"); err != nil {
		t.Errorf("save after the kills: %v", err)
	}
	if entries := framework.Must(os.ReadDir(filepath.Dir(file)))(t); len(entries) != 1 {
		t.Errorf("files after a complete save = %v, want the snapshot only", entries)
	}
	if killed == 0 {
		t.Errorf("saves that were killed = 0 of %d, want at least one", kills)
	}
}

// killRestores kills restore at random times. The directory must have no data, or all.
func killRestores(t *testing.T, file string, revision int64) {
	t.Helper()
	killed := 0
	began := time.Now()
	framework.Must(snapshot(t.Context(), "restore", file, "--data-dir="+filepath.Join(t.TempDir(), "data")))(t)
	took := time.Since(began)
	for i := range kills {
		dir := filepath.Join(t.TempDir(), "data")
		if killAfter(t, took*time.Duration(i+1)/(kills-2), "restore", file, "--data-dir="+dir) {
			killed++
		}
		if _, err := os.Stat(filepath.Join(dir, "member")); err == nil {
			// The restore is complete.
		} else if _, err := snapshot(t.Context(), "restore", file, "--data-dir="+dir); err != nil {
			t.Errorf("restore after a killed one: %v", err)
			continue
		}
		status, err := save(t.Context(), dir, snapshotFile(t, "again"))
		if err != nil {
			t.Errorf("data of a killed restore: %v", err)
		} else if bumped := revision + 1_000_000_000; status.Revision <= bumped {
			t.Errorf("data of a killed restore = %+v, want the mark of the restore at a revision above %d", status, bumped)
		}
	}
	if killed == 0 {
		t.Errorf("restores that were killed = 0 of %d, want at least one", kills)
	}
}

// killAfter runs a command of apiserver snapshot and kills it after a time. It reports whether the command was killed, or
// had ended by then.
func killAfter(t *testing.T, delay time.Duration, args ...string) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), delay)
	defer cancel()
	command, err := snapshotCommand(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	err = command.Run()
	if err != nil && ctx.Err() == nil {
		t.Errorf("apiserver snapshot %s: %v", args[0], err)
	}
	return err != nil
}
