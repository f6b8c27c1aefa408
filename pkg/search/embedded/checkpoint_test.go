package embedded_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

func checkpoint(t *testing.T, engine *embedded.Engine) {
	t.Helper()
	if err := engine.Checkpoint(nil); err != nil {
		t.Fatal(err)
	}
}

// scoped returns the UIDs that a restricted user finds.
func scoped(t *testing.T, engine search.Engine, scope visibility.Scope) []string {
	t.Helper()
	result, err := engine.Search(t.Context(), scope, &search.Request{Items: true, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	var uids []string
	for i := range result.Items {
		uids = append(uids, result.Items[i].UID)
	}
	slices.Sort(uids)
	return uids
}

// withoutCheckpoint returns a copy of the data without checkpoint.
func withoutCheckpoint(t *testing.T, dir string) string {
	t.Helper()
	dir = copied(t, dir)
	if err := os.Remove(filepath.Join(dir, embedded.CheckpointFile)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckpoint compares an engine that starts from a checkpoint and later entries of the files with one that reads
// all files, at first and after further reports to both.
func TestCheckpoint(t *testing.T) {
	r := seed.Rand(t)
	options := fleetgen.Options{Clusters: 5, PerCluster: 400, Seed: r.Uint64()}
	scope := visibilitytest.Scope(t, fleetgen.Policy(1, 2, 30), &user.DefaultInfo{Name: fleetgen.User})
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	var fulls []*search.Report
	for i := range options.Clusters {
		fulls = append(fulls, fleetgen.Cluster(options, i))
		apply(t, engine, fulls[i])
	}
	for n := range 6 {
		reports := someReports(r, fulls, n)
		if n%2 == 0 {
			checkpoint(t, engine)
		} else if err := engine.Checkpoint(func() {
			// The engine uses the mapping after some of the reports.
			apply(t, engine, &reports[0])
			apply(t, engine, &reports[1])
			reports = reports[2:]
		}); err != nil {
			t.Fatal(err)
		}
		for i := range reports {
			apply(t, engine, &reports[i])
		}
		if n == 3 {
			// The cluster returns with the reports of the next rounds.
			if err := engine.RemoveCluster(t.Context(), fulls[4].Cluster); err != nil {
				t.Fatal(err)
			}
		}
		before := everything(t, engine)
		closed(t, engine)
		all := open(t, withoutCheckpoint(t, dir), embedded.Options{})
		engine = open(t, dir, embedded.Options{})
		if got, most := engine.Indexed(), all.Indexed(); got == 0 || got > most/2 {
			t.Errorf("Indexed() after a checkpoint = %d, want at most half of %d resources, which are all", got, most)
		}
		for i := range 2 {
			a, b := everything(t, engine), everything(t, all)
			if i == 0 {
				if diff := cmp.Diff(before, a, enginetest.Comparing); diff != "" {
					t.Fatalf("round %d: answers after a restart (-before +after):\n%s", n, diff)
				}
			}
			if diff := cmp.Diff(b, a, enginetest.Comparing); diff != "" {
				t.Fatalf("round %d: answers from all files and from the checkpoint (-files +checkpoint):\n%s", n, diff)
			}
			if diff := cmp.Diff(scoped(t, all, scope), scoped(t, engine, scope)); diff != "" {
				t.Fatalf("round %d: resources in a scope (-files +checkpoint):\n%s", n, diff)
			}
			for _, report := range someReports(r, fulls, n+10) {
				apply(t, engine, &report)
				apply(t, all, &report)
			}
		}
		closed(t, all)
	}
	closed(t, engine)
}

// someReports returns updates with deletions and changed edges, a full report that is shorter than
// the previous one, and a report that changes only whether a cluster is the hub.
func someReports(r *rand.Rand, fulls []*search.Report, n int) []search.Report {
	var reports []search.Report
	for _, full := range fulls {
		update := fleetgen.Update(r, full, 10)
		for range 5 {
			update.Delete = append(update.Delete, full.Put[r.IntN(len(full.Put))].UID)
		}
		for range 8 {
			a, b := full.Put[r.IntN(len(full.Put))].UID, full.Put[r.IntN(len(full.Put))].UID
			update.AddEdges = append(update.AddEdges, search.Edge{SourceUID: a, DestUID: b, Type: "uses"})
			update.DeleteEdges = append(update.DeleteEdges, full.AddEdges[r.IntN(len(full.AddEdges))])
		}
		reports = append(reports, update)
	}
	full := *fulls[1+n%3]
	full.Put = full.Put[:len(full.Put)-n*20]
	reports = append(reports, full, *round("cluster-new", n))
	return append(reports, search.Report{Cluster: fulls[2].Cluster, Hub: n%2 == 1})
}

// TestUnusableCheckpoint opens data whose checkpoint is damaged or has another format.
func TestUnusableCheckpoint(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	apply(t, engine, fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 300}, 1))
	checkpoint(t, engine)
	before, total := everything(t, engine), 0
	for _, cluster := range before.Clusters {
		total += cluster.Resources
	}
	closed(t, engine)
	var r *rand.Rand
	for name, damage := range map[string]func(data []byte) []byte{
		"Empty":          func([]byte) []byte { return nil },
		"Truncated":      func(data []byte) []byte { return data[:len(data)/2] },
		"Longer":         func(data []byte) []byte { return append(data, 0) },
		"Another format": func(data []byte) []byte { data[8]++; return data },
		"One bit": func(data []byte) []byte {
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
			return data
		},
		"Random": func(data []byte) []byte { return randomBytes(r, len(data)) },
	} {
		t.Run(name, func(t *testing.T) {
			r = seed.Rand(t)
			target := copied(t, dir)
			path := filepath.Join(target, embedded.CheckpointFile)
			change(t, path, damage)
			engine := open(t, target, embedded.Options{})
			if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
				t.Errorf("answers (-before +after):\n%s", diff)
			}
			if got := engine.Indexed(); got != total {
				t.Errorf("Indexed() = %d, want all %d resources", got, total)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("Stat() of the checkpoint = %v, want not found", err)
			}
			checkpoint(t, engine)
			closed(t, engine)
			engine = open(t, target, embedded.Options{})
			defer closed(t, engine)
			if got := engine.Indexed(); got != 0 {
				t.Errorf("Indexed() after a new checkpoint = %d, want 0", got)
			}
		})
	}
}

// TestCheckpointOfDamagedCluster checks that a checkpoint does not replace a damaged file.
func TestCheckpointOfDamagedCluster(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	apply(t, engine, round("a", 3))
	apply(t, engine, round("b", 3))
	checkpoint(t, engine)
	closed(t, engine)
	change(t, filepath.Join(dir, embedded.ClusterFile("a")), func(data []byte) []byte {
		data[len(data)/2] ^= 1
		return data
	})
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if diff := cmp.Diff(map[string]bool{"a": true, "b": false}, incomplete(t, engine)); diff != "" {
		t.Errorf("incomplete clusters (-want +got):\n%s", diff)
	}
}

// TestCheckpointFormat detects changes of the content of checkpoints, and of what the engine derives from resources.
func TestCheckpointFormat(t *testing.T) {
	const want = 0x390f3413
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	for i := range 2 {
		apply(t, engine, fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 300}, i))
	}
	checkpoint(t, engine)
	record := engine.CheckpointRecord()
	closed(t, engine)
	data, err := os.ReadFile(filepath.Join(dir, embedded.CheckpointFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(binary.NativeEndian.AppendUint16(nil, 1), []byte{1, 0}) {
		t.Skip("the sum is of a machine with another order of bytes")
	}
	// The encoding of the record depends on the program.
	columns := data[embedded.CheckpointHeader:]
	columns = columns[8+binary.NativeEndian.Uint64(columns):]
	if got := crc32.ChecksumIEEE(append(columns, record...)); got != want {
		t.Errorf("ChecksumIEEE() of a checkpoint = %#x, want %#x: if the content changed, raise checkpointFormat and set the new sum here", got, want)
	}
}
