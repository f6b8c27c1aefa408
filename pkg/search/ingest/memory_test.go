package ingest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/search/fleetgen"
)

// numbers are the properties of a resource that has a list of many.
func numbers(cluster string, i, values int) string {
	return fmt.Sprintf(`{"uid":"%s/%d","properties":{"kind":"Pod","name":"a","x":[%s1]}}`, cluster, i, strings.Repeat("1,", values-1))
}

// What is small in a body may be large in memory, which is what runs out.
func TestReportsThatAreLargeInMemory(t *testing.T) {
	const values = 20_000
	body := func(cluster string, resources int) string {
		list := make([]string, resources)
		for i := range list {
			list[i] = numbers(cluster, i, values)
		}
		return `{"clearAll":true,"addResources":[` + strings.Join(list, ",") + `]}`
	}
	tests := []struct {
		name   string
		config Config
		why    string
	}{
		{"their number", Config{LargeReports: 1, LargeBytes: 2_000_000}, "too many large reports are being taken"},
		{"their memory", Config{LargeReports: 3, LargeBytes: 2_000_000, LargeTotal: 5_000_000}, "large reports that are being taken need too much memory together"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serveUploads(t, test.config)
			first := s.upload(t, "c1")
			await(t, first.reading, "the first report to be read")
			begun := strings.TrimSuffix(body("c1", 6), "]}")
			if len(begun) > 300_000 {
				t.Fatalf("the body has %d bytes, which is much anyway", len(begun))
			}
			// The decoder reads ahead; white space lets it come to the end of what counts.
			first.send(t, begun+strings.Repeat(" ", 300_000))
			err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) {
				s.handler.slots.lock.Lock()
				defer s.handler.slots.lock.Unlock()
				return s.handler.slots.held > 4_000_000, nil
			})
			if err != nil {
				t.Fatal("the first report is not a large one")
			}
			refusedForNow(t, s.post(t, "c2", body("c2", 4)), test.why)
			if resources, _ := s.post(t, "c2", body("c2", 1)).totals(t); resources != 1 {
				t.Errorf("a small report leaves %d resources, want 1", resources)
			}
			if resources, _ := first.finish(t, "]}").totals(t); resources != 6 {
				t.Errorf("the first report leaves %d resources, want 6", resources)
			}
			// More than all may have together, but nobody else wants any.
			if resources, _ := s.post(t, "c2", body("c2", 12)).totals(t); resources != 12 {
				t.Errorf("a report that is alone leaves %d resources, want 12", resources)
			}
		})
	}
}

// The limit of values must not be one that a cluster meets.
func TestLimitOfValuesFitsClusters(t *testing.T) {
	const largest = 300_000
	report := fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 5000}, 1)
	values := 0
	for i := range report.Put {
		for j := range report.Put[i].Properties {
			values += len(report.Put[i].Properties[j].Leaves)
		}
	}
	each := float64(values) / float64(len(report.Put))
	t.Logf("a resource has %.1f values", each)
	if limit := (Limits{}).withDefaults().Values; each*largest > float64(limit) {
		t.Errorf("%d resources with %.1f values each are more than %d values", largest, each, limit)
	}
}

// endless is a report that does not end: resources, one after the other.
type endless struct {
	head, next string
	rest       string
	made       int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.head
		if e.made > 0 {
			e.rest = fmt.Sprintf(e.next, e.made)
		}
		e.made++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// worst are reports that take as much memory as they can, by what they consist of: the resource that is repeated.
func worst() map[string]string {
	resource := func(x string) string {
		return `,{"uid":"c1/%d","properties":{"kind":"Pod","name":"a","x":` + x + `}}`
	}
	fields := make([]string, 250)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"p%d":1`, i)
	}
	return map[string]string{
		"lists":            resource("[" + strings.Repeat("1,", 32_000) + "1]"),
		"lists in lists":   resource("[" + strings.Repeat("["+strings.Repeat("1,", 31)+"1],", 950) + "1]"),
		"lists of nothing": resource("[" + strings.Repeat("[],", 21_000) + "1]"),
		"properties":       `,{"uid":"c1/%d","properties":{"kind":"Pod","name":"a",` + strings.Join(fields, ",") + `}}`,
		"resources":        resource("1"),
		"long texts":       resource(`"` + strings.Repeat("x", 65_000) + `"`),
	}
}

func newEndless(next string) *endless {
	return &endless{head: `{"addResources":[` + strings.TrimPrefix(fmt.Sprintf(next, 0), ","), next: next}
}

// BenchmarkWorstReport prints what hostile reports take until they are refused: what is kept at the
// end as it is counted, and the most that the heap had.
func BenchmarkWorstReport(b *testing.B) {
	for name, next := range worst() {
		b.Run(name, func(b *testing.B) {
			var kept, most uint64
			for b.Loop() {
				most = max(most, peakOf(func() {
					_, _, _, err := decode(newEndless(next), "c1", false, true, Limits{}, func(bytes int64) error {
						kept = max(kept, uint64(bytes))
						return nil
					})
					if !errors.Is(err, ErrTooLarge) {
						b.Errorf("got %v", err)
					}
				}))
			}
			b.ReportMetric(float64(kept)/1e6, "MB-counted")
			b.ReportMetric(float64(most)/1e6, "MB-heap-peak")
		})
	}
}

// BenchmarkWorstReportsAtOnce prints the same for as many hostile reports as are taken at a time.
func BenchmarkWorstReportsAtOnce(b *testing.B) {
	for _, name := range []string{"lists", "properties"} {
		next := worst()[name]
		b.Run(name, func(b *testing.B) {
			handler := serve(b, Config{}).handler
			var kept, most uint64
			for b.Loop() {
				most = max(most, peakOf(func() {
					var sending sync.WaitGroup
					for i := range handler.config.Reports {
						sending.Go(func() {
							slot, err := handler.slots.acquire(fmt.Sprintf("c%d", i+1), false)
							if err != nil {
								b.Error(err)
								return
							}
							defer slot.release()
							_, _, _, err = decode(newEndless(next), "c1", false, true, Limits{}, func(bytes int64) error {
								err := slot.hold(bytes)
								slot.slots.lock.Lock()
								defer slot.slots.lock.Unlock()
								kept = max(kept, uint64(slot.slots.held))
								return err
							})
							if err == nil {
								b.Error("a report that does not end is taken")
							}
						})
					}
					sending.Wait()
				}))
			}
			b.ReportMetric(float64(kept)/1e6, "MB-counted")
			b.ReportMetric(float64(most)/1e6, "MB-heap-peak")
		})
	}
}

// peakOf is how much larger than before the heap was while something ran.
func peakOf(run func()) uint64 {
	runtime.GC()
	before := heapBytes()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() { peak <- peakHeap(done) }()
	run()
	close(done)
	return <-peak - before
}

func peakHeap(done <-chan struct{}) uint64 {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	most := heapBytes()
	for {
		select {
		case <-ticker.C:
			most = max(most, heapBytes())
		case <-done:
			return max(most, heapBytes())
		}
	}
}

// heapBytes are those that objects of the heap take, dead ones that were not collected included.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
