package embedded_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// childDir is the environment variable that makes the test binary apply reports in a directory
// until it is killed.
const childDir = "SEARCH_EMBEDDED_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := reportForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// crashResources is the number of resources of the report of a round.
const crashResources = 40

// round returns a report in which all resources and edges contain the number of the round. Every
// third report is full.
func round(cluster string, n int) *search.Report {
	report := &search.Report{Cluster: cluster, Full: n%3 == 0, Time: time.Unix(int64(n), 0).UTC()}
	for i := range crashResources {
		report.Put = append(report.Put, search.Resource{
			UID: fmt.Sprintf("%s/00000000-0000-4000-8000-%012d", cluster, i),
			Properties: query.Properties{
				{Name: "kind", Leaves: []query.Leaf{{Text: "Thing"}}},
				{Name: "name", Leaves: []query.Leaf{{Text: fmt.Sprintf("thing-%d-%d", i, n)}}},
				{Name: "round", Type: query.Number, Leaves: []query.Leaf{{Type: query.Number, Text: strconv.Itoa(n)}}},
			},
		})
		report.AddEdges = append(report.AddEdges, search.Edge{
			SourceUID: report.Put[i].UID, DestUID: report.Put[0].UID, Type: fmt.Sprintf("round-%d", n),
		})
	}
	return report
}

func reportForever(dir string) error {
	engine, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		for _, cluster := range []string{"a", "b"} {
			if _, err := engine.Apply(context.Background(), round(cluster, n)); err != nil {
				return err
			}
			fmt.Printf("%s %d\n", cluster, n)
		}
		if n%7 == 0 {
			if err := engine.Checkpoint(func() {}); err != nil {
				return err
			}
		}
	}
}

func TestAcknowledgedReportsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]int{}
	for kills := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		clear(acknowledged)
		for seen := 0; lines.Scan(); {
			var cluster string
			var n int
			if _, err := fmt.Sscanf(lines.Text(), "%s %d", &cluster, &n); err != nil {
				continue
			}
			acknowledged[cluster] = n
			if seen++; seen == 50+37*kills {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := child.Wait(); err == nil || len(acknowledged) == 0 {
			t.Fatalf("Wait() of the killed process = %v with acknowledged rounds %v, want an error and some rounds", err, acknowledged)
		}
		cancel()
		checkRounds(t, dir, acknowledged)
	}
}

// checkRounds opens the data and checks that they contain complete rounds, and no round older than
// the acknowledged ones.
func checkRounds(t *testing.T, dir string, acknowledged map[string]int) {
	t.Helper()
	engine := open(t, dir, embedded.Options{})
	defer closed(t, engine)
	states, err := engine.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		if state.Incomplete {
			t.Errorf("Incomplete of cluster %s after a crash of the process = true, want false", state.Name)
		}
	}
	for cluster, n := range acknowledged {
		found, err := engine.Complete(t.Context(), visibility.Everything(), &search.CompletionRequest{
			Property: "round", Limit: -1, Query: parse(t, "cluster:"+cluster),
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Values) != 1 || found.Values[0].Count != crashResources {
			t.Errorf("rounds of cluster %s = %v, want one round of %d resources", cluster, found.Values, crashResources)
			continue
		}
		if stored, err := strconv.Atoi(found.Values[0].Value); err != nil || stored < n {
			t.Errorf("round of cluster %s = %s, want at least %d, which was acknowledged", cluster, found.Values[0].Value, n)
		}
	}
}

func open(t testing.TB, dir string, options embedded.Options) *embedded.Engine {
	t.Helper()
	engine, err := embedded.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func closed(t testing.TB, engine *embedded.Engine) {
	t.Helper()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
}

func parse(t testing.TB, text string) query.Query {
	t.Helper()
	q, err := query.Parse(text)
	if err != nil {
		t.Fatalf("Parse(%s) = %v, want nil", text, err)
	}
	return q
}

func apply(t testing.TB, engine search.Engine, report *search.Report) *search.Applied {
	t.Helper()
	for i := range report.Put {
		slices.SortFunc(report.Put[i].Properties, func(a, b query.Property) int { return cmp.Compare(a.Name, b.Name) })
	}
	applied, err := engine.Apply(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}
