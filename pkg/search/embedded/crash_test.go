package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// childDir is the variable that makes the test binary a process that reports until it is killed.
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

// crashResources is how many resources each report of a round has.
const crashResources = 40

// round is a report in which all resources and edges say which round it is. Every third is full.
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
	}
}

func TestAcknowledgedReportsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]int{}
	for kills := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
			t.Fatalf("the process was not killed while it reported: %v, %v", err, acknowledged)
		}
		cancel()
		checkRounds(t, dir, acknowledged)
	}
}

// checkRounds opens the data and expects whole rounds, none older than what was acknowledged.
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
			t.Errorf("cluster %s is incomplete although only the process crashed", state.Name)
		}
	}
	for cluster, n := range acknowledged {
		found, err := engine.Complete(t.Context(), visibilitytest.Everything(), &search.CompletionRequest{
			Property: "round", Limit: -1, Query: parse(t, "cluster:"+cluster),
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Values) != 1 || found.Values[0].Count != crashResources {
			t.Errorf("cluster %s has parts of reports: %v", cluster, found.Values)
			continue
		}
		if stored, err := strconv.Atoi(found.Values[0].Value); err != nil || stored < n {
			t.Errorf("cluster %s has round %s, but %d was acknowledged", cluster, found.Values[0].Value, n)
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
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

func apply(t testing.TB, engine search.Engine, report *search.Report) *search.Applied {
	t.Helper()
	applied, err := engine.Apply(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}
