package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// freshProcess is the environment variable with which this program only opens the embedded
// engine, as fresh specifies, and prints the figures.
const freshProcess = "SEARCH_BENCH_FRESH"

// freshTimeout bounds the run time of such a process.
const freshTimeout = 10 * time.Minute

// fresh is the task of a separate process that starts with empty caches.
type fresh struct {
	Dir string
	// Fleet is reported first, unless it is empty.
	Fleet fleetgen.Options
}

// freshFigures are the figures that the process prints.
type freshFigures struct {
	Resources int
	// Open is the time from the call of Open to the result of the first search.
	Open time.Duration
	// Resident is the resident memory in MB before a garbage collection, and Collected after it.
	Resident, Collected float64
}

// BenchmarkSearchEmbedded measures the embedded engine.
func BenchmarkSearchEmbedded(b *testing.B) {
	for range b.N {
		dir := b.TempDir()
		engine, err := embedded.Open(dir, embedded.Options{})
		if err != nil {
			b.Fatal(err)
		}
		benchmarkEngine(b, engine)
		if err := engine.Close(); err != nil {
			b.Fatal(err)
		}
		after := inFreshProcess(b, fresh{Dir: dir})
		b.ReportMetric(after.Open.Seconds(), "restart-s")
		fmt.Printf("opened again with %d resources: the first answer after %.2f s, %s\n", after.Resources, after.Open.Seconds(), after)
		filled := inFreshProcess(b, fresh{Dir: b.TempDir(), Fleet: fleetSize(b)})
		b.ReportMetric(filled.Resident*(1<<20)/float64(filled.Resources), "bytes/resource")
		fmt.Printf("filled with %d resources: %s\n", filled.Resources, filled)
	}
}

// String returns the memory as text.
func (f freshFigures) String() string {
	each := func(mb float64) float64 { return mb * (1 << 20) / float64(max(1, f.Resources)) }
	return fmt.Sprintf("%.0f MB resident (%.0f bytes per resource), %.0f MB after a garbage collection (%.0f)",
		f.Resident, each(f.Resident), f.Collected, each(f.Collected))
}

func inFreshProcess(b *testing.B, task fresh) freshFigures {
	b.Helper()
	encoded, err := json.Marshal(task)
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), freshTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program)
	command.Env = append(os.Environ(), freshProcess+"="+string(encoded))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		b.Fatalf("%v: %s", err, stderr.Bytes())
	}
	var figures freshFigures
	if err := json.Unmarshal(stdout.Bytes(), &figures); err != nil {
		b.Fatalf("%v: %s", err, stdout.Bytes())
	}
	return figures
}

// runFresh is the main function of such a process. It returns false in any other process.
func runFresh() (bool, error) {
	encoded := os.Getenv(freshProcess)
	if encoded == "" {
		return false, nil
	}
	var task fresh
	if err := json.Unmarshal([]byte(encoded), &task); err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), freshTimeout)
	defer cancel()
	started := time.Now()
	engine, err := embedded.Open(task.Dir, embedded.Options{})
	if err != nil {
		return true, err
	}
	for i := range task.Fleet.Clusters {
		if _, err := engine.Apply(ctx, fleetgen.Cluster(task.Fleet, i)); err != nil {
			return true, err
		}
	}
	if _, err := engine.Search(ctx, visibility.Everything(), &search.Request{Now: fleetgen.Epoch, Items: true, Limit: pageSize}); err != nil {
		return true, err
	}
	figures := freshFigures{Open: time.Since(started)}
	states, err := engine.Clusters(ctx)
	if err != nil {
		return true, err
	}
	for _, state := range states {
		figures.Resources += state.Resources
	}
	if figures.Resident, err = residentMemory(os.Getpid()); err != nil {
		return true, err
	}
	debug.FreeOSMemory()
	if figures.Collected, err = residentMemory(os.Getpid()); err != nil {
		return true, err
	}
	if err := engine.Close(); err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(figures)
}
