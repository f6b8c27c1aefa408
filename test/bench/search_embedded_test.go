package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
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
const freshTimeout = time.Hour

// fresh is the task of a separate process that starts with empty caches.
type fresh struct {
	Dir string
	// The clusters of Fleet that have not reported yet report first.
	Fleet fleetgen.Options
}

// freshFigures are the figures that the process prints.
type freshFigures struct {
	Resources int
	// Open is the time from the call of Open to the result of the first search, and CPU the CPU time until then.
	Open, CPU time.Duration
	// Resident is the resident memory in MB before a garbage collection, and Collected after it. Files is the part of
	// Collected that consists of pages of files.
	Resident, Collected, Files float64
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
	return fmt.Sprintf("%.1f s of CPU, %.0f MB resident (%.0f bytes per resource), %.0f MB after a garbage collection (%.0f), of which %.0f MB are pages of files",
		f.CPU.Seconds(), f.Resident, each(f.Resident), f.Collected, each(f.Collected), f.Files)
}

// BenchmarkSearchStored measures a start of the embedded engine, its memory and its queries with one client, with the
// data in the directory SEARCH_DIR. It is for fleets that take long to report: the clusters that the directory does
// not contain report first, in a process of their own.
func BenchmarkSearchStored(b *testing.B) {
	dir := os.Getenv("SEARCH_DIR")
	if dir == "" {
		b.Skip("SEARCH_DIR is not set")
	}
	size := fleetSize(b)
	for range b.N {
		fmt.Printf("filled: %s\n", inFreshProcess(b, fresh{Dir: dir, Fleet: size}))
		opened := inFreshProcess(b, fresh{Dir: dir})
		fmt.Printf("opened again with %d resources: the first answer after %.2f s, %s\n", opened.Resources, opened.Open.Seconds(), opened)
		engine, err := embedded.Open(dir, embedded.Options{})
		if err != nil {
			b.Fatal(err)
		}
		f := &searchedFleet{engine: engine, options: size, users: searchUsers(b, size)}
		f.measureQueries(b, 1)
		if err := engine.Close(); err != nil {
			b.Fatal(err)
		}
	}
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
	before, err := engine.Clusters(ctx)
	if err != nil {
		return true, err
	}
	for i := range task.Fleet.Clusters {
		if slices.ContainsFunc(before, func(c search.ClusterState) bool { return c.Name == fleetgen.ClusterName(i) }) {
			continue
		}
		if _, err := engine.Apply(ctx, fleetgen.Cluster(task.Fleet, i)); err != nil {
			return true, err
		}
	}
	if _, err := engine.Search(ctx, visibility.Everything(), &search.Request{Now: fleetgen.Epoch, Items: true, Limit: pageSize}); err != nil {
		return true, err
	}
	figures := freshFigures{Open: time.Since(started)}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return true, err
	}
	figures.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
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
	if figures.Files, err = memoryOf(os.Getpid(), "RssFile"); err != nil {
		return true, err
	}
	if err := engine.Close(); err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(figures)
}
