package embedded_test

import (
	"bytes"
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
	"go.etcd.io/bbolt"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/enginetest"
	"open-cluster-management.io/hub-apiserver/pkg/search/fleetgen"
)

func TestDataInUse(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, embedded.Options{})
	if second, err := embedded.Open(dir, embedded.Options{}); !errors.Is(err, search.ErrInUse) {
		t.Errorf("opened twice: %v, %v", second, err)
	}
	closed(t, first)
	closed(t, open(t, dir, embedded.Options{}))
}

// copied is what a crash of the machine leaves: the file as it is while the engine runs.
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
		t.Errorf("incomplete in the same run of the machine (-want +got):\n%s", diff)
	}
	closed(t, same)
	clean := open(t, dir, embedded.OnBoot("second"))
	if diff := cmp.Diff(map[string]bool{"a": false, "b": false}, incomplete(t, clean)); diff != "" {
		t.Errorf("incomplete after Close (-want +got):\n%s", diff)
	}
	closed(t, clean)

	for _, boot := range []string{"second", "third"} {
		engine = open(t, crashed, embedded.OnBoot(boot))
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, incomplete(t, engine)); diff != "" {
			t.Errorf("incomplete in run %s (-want +got):\n%s", boot, diff)
		}
		next := apply(t, engine, round("a", 4)).Version
		if next <= version {
			t.Errorf("version %d after %d", next, version)
		}
		version = next
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, incomplete(t, engine)); diff != "" {
			t.Errorf("incomplete after a report of changes (-want +got):\n%s", diff)
		}
		closed(t, engine)
	}
	engine = open(t, crashed, embedded.OnBoot("third"))
	defer closed(t, engine)
	apply(t, engine, round("a", 6))
	if diff := cmp.Diff(map[string]bool{"a": false, "b": true}, incomplete(t, engine)); diff != "" {
		t.Errorf("incomplete after a full report of a (-want +got):\n%s", diff)
	}
}

func TestCorruptDataAfterACrashOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.OnBoot("first"))
	for i := range 2 {
		apply(t, engine, fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 300}, i))
	}
	crashed := copied(t, dir)
	closed(t, engine)
	for _, damage := range []struct {
		name string
		do   func(data []byte) []byte
	}{
		{"Truncated", func(data []byte) []byte { return data[:len(data)/2] }},
		{"Empty pages", func(data []byte) []byte {
			clear(data[3*os.Getpagesize():])
			return data
		}},
		{"Random bytes", func(data []byte) []byte {
			for i := 2 * os.Getpagesize(); i < len(data); i += 13 {
				data[i] ^= byte(i)
			}
			return data
		}},
		{"No pages", func([]byte) []byte { return bytes.Repeat([]byte{0xff}, 4*os.Getpagesize()) }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			target := copied(t, crashed)
			path := filepath.Join(target, embedded.DataFile)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage.do(data), 0o600); err != nil {
				t.Fatal(err)
			}
			engine := open(t, target, embedded.OnBoot("second"))
			defer closed(t, engine)
			if states := incomplete(t, engine); len(states) > 0 && !states[fleetgen.Hub] {
				t.Errorf("clusters are trusted: %v", states)
			}
			apply(t, engine, round("a", 3))
			result, err := engine.Search(t.Context(), visibilitytest.Everything(), &search.Request{Query: parse(t, "cluster:a")})
			if err != nil || result.Count != crashResources {
				t.Errorf("found %+v, %v", result, err)
			}
		})
	}
}

// withoutBucket makes an element of the root say that it is no bucket.
func withoutBucket(t *testing.T, data []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("meta")
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
		return tx.Cursor().Bucket().Put(name, []byte("no bucket"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return damaged
}

// TestDamagedDataAreNotServed damages data that nothing but the process had in use. Whatever is wrong, the
// engine opens, and has all of the data, or none of a cluster that it trusts.
func TestDamagedDataAreNotServed(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.OnBoot("first"))
	options := fleetgen.Options{Clusters: 3, PerCluster: 150}
	for i := range options.Clusters {
		apply(t, engine, fleetgen.Cluster(options, i))
	}
	before := everything(t, engine)
	closed(t, engine)
	sound, err := os.ReadFile(filepath.Join(dir, embedded.DataFile))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const metaPages = 2
	page := os.Getpagesize()
	damages := map[string]func(data []byte) []byte{
		"Empty":        func([]byte) []byte { return nil },
		"One byte":     func(data []byte) []byte { return data[:1] },
		"Text":         func([]byte) []byte { return []byte(strings.Repeat("no data\n", 4000)) },
		"Other format": func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("format\x02"), []byte("format\x09")) },
		"Lost meta":    func(data []byte) []byte { clear(data[page : 2*page]); return data },
		"No bucket":    func(data []byte) []byte { return withoutBucket(t, data) },
		"Half":         func(data []byte) []byte { return data[:len(data)/2] },
		"Random bytes": func(data []byte) []byte { return append(data[:2*page:2*page], randomBytes(r, len(data)-2*page)...) },
	}
	for i := range 60 {
		damages[fmt.Sprintf("Flip %d", i)] = func(data []byte) []byte {
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
			return data
		}
		// The first bytes of a page tell what it is.
		damages[fmt.Sprintf("Page header %d", i)] = func(data []byte) []byte {
			data[page*r.IntN(len(data)/page)+r.IntN(64)] ^= 1 << r.IntN(8)
			return data
		}
	}
	for i := range 20 {
		damages[fmt.Sprintf("Truncated %d", i)] = func(data []byte) []byte { return data[:r.IntN(len(data))] }
		damages[fmt.Sprintf("Copied page %d", i)] = func(data []byte) []byte {
			pages := len(data) / page
			to, from := r.IntN(pages), r.IntN(pages)
			if to < metaPages && from < metaPages {
				// With the other meta page, the file is a sound one of a moment ago.
				from += metaPages
			}
			copy(data[page*to:][:page], data[page*from:])
			return data
		}
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		t.Run(name, func(t *testing.T) {
			target := copied(t, dir)
			if err := os.WriteFile(filepath.Join(target, embedded.DataFile), damages[name](slices.Clone(sound)), 0o600); err != nil {
				t.Fatal(err)
			}
			engine := open(t, target, embedded.OnBoot("first"))
			defer closed(t, engine)
			if found := incomplete(t, engine); len(found) > 0 {
				if diff := cmp.Diff(before, everything(t, engine), enginetest.Comparing); diff != "" {
					t.Errorf("clusters are found, but not as they were (-before +after):\n%s", diff)
				}
			} else if name != "Empty" {
				// A damaged format is another format.
				if aside, err := filepath.Glob(filepath.Join(target, embedded.DataFile+".[cf]or*-*")); err != nil || len(aside) != 1 {
					t.Errorf("the damaged file is not beside the data: %v, %v", aside, err)
				}
			}
			if next := apply(t, engine, round("a", 3)); next.Resources != crashResources {
				t.Errorf("a report after the damage left %+v", next)
			}
		})
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestDamagedDataAreKeptOnce(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		if err := os.WriteFile(filepath.Join(dir, embedded.DataFile), []byte("this is not what it should be"), 0o600); err != nil {
			t.Fatal(err)
		}
		closed(t, open(t, dir, embedded.Options{}))
	}
	if aside, err := filepath.Glob(filepath.Join(dir, embedded.DataFile+".corrupt-*")); err != nil || len(aside) != 1 {
		t.Errorf("there are damaged files %v, %v", aside, err)
	}
}

func TestRestartFindsTheSame(t *testing.T) {
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
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}

// snapshot is all that an engine answers about its data.
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
	ctx, scope := t.Context(), visibilitytest.Everything()
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
