package embedded_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

func TestDataInUse(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, embedded.Options{})
	if second, err := embedded.Open(dir, embedded.Options{}); !errors.Is(err, search.ErrInUse) {
		t.Errorf("second Open() = %v, %v, want ErrInUse", second, err)
	}
	closed(t, first)
	closed(t, open(t, dir, embedded.Options{}))
}

// copied returns a copy of the data of a running engine. The copy is in the same state as the data
// after a crash of the machine.
func copied(t *testing.T, dir string) string {
	t.Helper()
	target := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(target, entry.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return target
}

func incomplete(t *testing.T, engine search.Engine) map[string]bool {
	t.Helper()
	states, err := engine.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]bool{}
	for _, state := range states {
		result[state.Name] = state.Incomplete
	}
	return result
}

func TestClustersAreIncompleteAfterACrashOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.OnBoot("first"))
	apply(t, engine, round("a", 3))
	version := apply(t, engine, round("b", 3)).Version
	crashed := copied(t, dir)
	closed(t, engine)

	same := open(t, copied(t, crashed), embedded.OnBoot("first"))
	if diff := cmp.Diff(map[string]bool{"a": false, "b": false}, incomplete(t, same)); diff != "" {
		t.Errorf("incomplete clusters in the same run of the machine (-want +got):\n%s", diff)
	}
	closed(t, same)
	clean := open(t, dir, embedded.OnBoot("second"))
	if diff := cmp.Diff(map[string]bool{"a": false, "b": false}, incomplete(t, clean)); diff != "" {
		t.Errorf("incomplete clusters after Close() (-want +got):\n%s", diff)
	}
	closed(t, clean)

	for _, boot := range []string{"second", "third"} {
		engine = open(t, crashed, embedded.OnBoot(boot))
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, incomplete(t, engine)); diff != "" {
			t.Errorf("incomplete clusters in run %s (-want +got):\n%s", boot, diff)
		}
		next := apply(t, engine, round("a", 4)).Version
		if next <= version {
			t.Errorf("version of the next report = %d, want more than %d", next, version)
		}
		version = next
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, incomplete(t, engine)); diff != "" {
			t.Errorf("incomplete clusters after a report of changes (-want +got):\n%s", diff)
		}
		closed(t, engine)
	}
	engine = open(t, crashed, embedded.OnBoot("third"))
	defer closed(t, engine)
	apply(t, engine, round("a", 6))
	if diff := cmp.Diff(map[string]bool{"a": false, "b": true}, incomplete(t, engine)); diff != "" {
		t.Errorf("incomplete clusters after a full report of a (-want +got):\n%s", diff)
	}
}

func TestDamageAfterACrashOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.OnBoot("first"))
	for i := range 2 {
		apply(t, engine, fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 300}, i))
	}
	crashed := copied(t, dir)
	closed(t, engine)
	for name, damage := range map[string]func(data []byte) []byte{
		"Truncated": func(data []byte) []byte { return data[:len(data)/2] },
		"Zeros": func(data []byte) []byte {
			clear(data[len(data)/3:])
			return data
		},
		"Only zeros": func(data []byte) []byte { return make([]byte, len(data)) },
		"Flipped bits": func(data []byte) []byte {
			for i := 100; i < len(data); i += 13 {
				data[i] ^= byte(i)
			}
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := copied(t, crashed)
			change(t, filepath.Join(target, embedded.ClusterFile(fleetgen.Hub)), damage)
			engine := open(t, target, embedded.OnBoot("second"))
			defer closed(t, engine)
			if diff := cmp.Diff(map[string]bool{fleetgen.Hub: true, "cluster-001": true}, incomplete(t, engine)); diff != "" {
				t.Errorf("incomplete clusters (-want +got):\n%s", diff)
			}
			apply(t, engine, round("a", 3))
			result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: parse(t, "cluster:a")})
			if err != nil || result.Count != crashResources {
				t.Errorf("Search(cluster:a) = %+v, %v, want %d resources", result, err, crashResources)
			}
		})
	}
}

// change rewrites a file with the result of a function.
func change(t *testing.T, path string, by func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, by(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedDataAreNotServed damages files at random. It checks that the engine opens, and that
// each cluster is either Incomplete or unchanged.
func TestDamagedDataAreNotServed(t *testing.T) {
	r := seed.Rand(t)
	dir := t.TempDir()
	engine := open(t, dir, embedded.OnBoot("first"))
	options := fleetgen.Options{Clusters: 3, PerCluster: 150, Seed: r.Uint64()}
	files := []string{embedded.StateFile}
	for i := range options.Clusters {
		full := fleetgen.Cluster(options, i)
		apply(t, engine, full)
		update := fleetgen.Update(r, full, 20)
		apply(t, engine, &update)
		files = append(files, embedded.ClusterFile(full.Cluster))
	}
	before, clusters := everything(t, engine), itemsByCluster(t, engine)
	closed(t, engine)
	file := func() string { return files[r.IntN(len(files))] }
	damages := map[string]func(t *testing.T, target string){
		"Every file": func(t *testing.T, target string) {
			for _, file := range files {
				change(t, filepath.Join(target, file), func(data []byte) []byte { return randomBytes(r, len(data)) })
			}
		},
		"Lost state": func(t *testing.T, target string) {
			if err := os.Remove(filepath.Join(target, embedded.StateFile)); err != nil {
				t.Fatal(err)
			}
		},
		"Another cluster": func(t *testing.T, target string) {
			change(t, filepath.Join(target, files[1]), func([]byte) []byte {
				data, err := os.ReadFile(filepath.Join(target, files[2]))
				if err != nil {
					t.Fatal(err)
				}
				return data
			})
		},
	}
	for i := range 30 {
		for name, damage := range map[string]func(data []byte) []byte{
			"Empty":    func([]byte) []byte { return nil },
			"One byte": func(data []byte) []byte { return data[:1] },
			"Text":     func([]byte) []byte { return []byte(strings.Repeat("no data\n", 4000)) },
			"Half":     func(data []byte) []byte { return data[:len(data)/2] },
			"Flip": func(data []byte) []byte {
				data[r.IntN(len(data))] ^= 1 << r.IntN(8)
				return data
			},
			"Header": func(data []byte) []byte {
				data[r.IntN(64)] ^= 1 << r.IntN(8)
				return data
			},
			"Truncated": func(data []byte) []byte { return data[:r.IntN(len(data))] },
			"Longer":    func(data []byte) []byte { return append(data, randomBytes(r, 100)...) },
			"Moved": func(data []byte) []byte {
				from, to := r.IntN(len(data)), r.IntN(len(data))
				copy(data[to:], data[from:])
				return data
			},
			"Random bytes": func(data []byte) []byte { return append(data[:64:64], randomBytes(r, len(data)-64)...) },
		} {
			damages[fmt.Sprintf("%s %d", name, i)] = func(t *testing.T, target string) { change(t, filepath.Join(target, file()), damage) }
		}
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		t.Run(name, func(t *testing.T) {
			target := copied(t, dir)
			damages[name](t, target)
			engine := open(t, target, embedded.OnBoot("first"))
			defer closed(t, engine)
			states := incomplete(t, engine)
			items := itemsByCluster(t, engine)
			complete := true
			for cluster := range clusters {
				isIncomplete, known := states[cluster]
				complete = complete && known && !isIncomplete
				if !known {
					t.Errorf("Clusters() = %v, want it to contain %s", states, cluster)
				}
				if known && !isIncomplete {
					if diff := cmp.Diff(clusters[cluster], items[cluster], enginetest.Comparing); diff != "" {
						t.Errorf("items of complete cluster %s (-before +after):\n%s", cluster, diff)
					}
				}
			}
			if complete {
				if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
					t.Errorf("answers of complete clusters (-before +after):\n%s", diff)
				}
			}
			if next := apply(t, engine, round("a", 3)); next.Resources != crashResources || next.Version <= before.Version {
				t.Errorf("Apply() after the damage = %+v, want %d resources and a version above %d", next, crashResources, before.Version)
			}
		})
	}
}

func itemsByCluster(t *testing.T, engine search.Engine) map[string][]search.Item {
	t.Helper()
	items := map[string][]search.Item{}
	for _, item := range everything(t, engine).Items {
		items[item.Cluster] = append(items[item.Cluster], item)
	}
	return items
}

func randomBytes(r *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestDamagedFilesAreKeptOnce(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		if err := os.WriteFile(filepath.Join(dir, embedded.ClusterFile("a")), []byte("this is not what it should be"), 0o600); err != nil {
			t.Fatal(err)
		}
		closed(t, open(t, dir, embedded.Options{}))
	}
	aside, err := filepath.Glob(filepath.Join(dir, embedded.DiscardedDir, "*"))
	if want := []string{filepath.Join(dir, embedded.DiscardedDir, embedded.ClusterFile("a"))}; err != nil || !slices.Equal(aside, want) {
		t.Errorf("files moved aside = %v, %v, want %v", aside, err, want)
	}
}

// TestFilesDoNotGrow applies many changes of the same resources.
func TestFilesDoNotGrow(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	for n := range 100 {
		apply(t, engine, round("a", n+1))
	}
	before := everything(t, engine)
	closed(t, engine)
	file, err := os.Stat(filepath.Join(dir, embedded.ClusterFile("a")))
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(100 << 10); file.Size() > most {
		t.Errorf("size of the file after 100 reports = %d, want at most %d", file.Size(), most)
	}
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
		t.Errorf("answers after a restart (-before +after):\n%s", diff)
	}
}

// TestFailedWrites checks that a report that was rejected because of a failed write is not restored
// later.
func TestFailedWrites(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	obstacle := filepath.Join(dir, embedded.ClusterFile("b")+".new")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	apply(t, engine, round("a", 3))
	if applied, err := engine.Apply(t.Context(), round("b", 3)); err == nil {
		t.Fatalf("Apply() of a report that cannot be written = %+v, want an error", applied)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	apply(t, engine, round("a", 4))
	apply(t, engine, round("b", 6))
	before := everything(t, engine)
	closed(t, engine)
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
		t.Errorf("answers after a restart (-before +after):\n%s", diff)
	}
}

func TestRestartKeepsAnswers(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	options := fleetgen.Options{Clusters: 3, PerCluster: 700}
	for i := range options.Clusters {
		apply(t, engine, fleetgen.Cluster(options, i))
	}
	apply(t, engine, round("cluster-002", 1))
	if err := engine.RemoveCluster(t.Context(), "cluster-001"); err != nil {
		t.Fatal(err)
	}
	before := everything(t, engine)
	closed(t, engine)
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
		t.Errorf("answers after a restart (-before +after):\n%s", diff)
	}
}

// snapshot contains all answers of an engine about its data.
type snapshot struct {
	Version  uint64
	Clusters []search.ClusterState
	Items    []search.Item
	Related  []search.Related
	Schema   []search.PropertySchema
	Labels   *search.Completion
}

func everything(t *testing.T, engine search.Engine) snapshot {
	t.Helper()
	ctx, scope := t.Context(), visibility.Everything()
	byUID := []search.Order{{Property: "none"}}
	result, err := engine.Search(ctx, scope, &search.Request{Items: true, Limit: -1, OrderBy: byUID})
	if err != nil {
		t.Fatal(err)
	}
	related, err := engine.Search(ctx, scope, &search.Request{Query: parse(t, "kind:Deployment"), Related: true, RelatedDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot{Version: result.Version, Items: result.Items, Related: related.Related}
	q := parse(t, "")
	if s.Schema, err = engine.Schema(ctx, scope, &q, fleetgen.Epoch); err != nil {
		t.Fatal(err)
	}
	if s.Labels, err = engine.Complete(ctx, scope, &search.CompletionRequest{Property: "label", Limit: -1}); err != nil {
		t.Fatal(err)
	}
	if s.Clusters, err = engine.Clusters(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}
