package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// numbers returns a resource with a long list.
func numbers(cluster string, i, values int) string {
	return fmt.Sprintf(`{"uid":"%s/%d","properties":{"kind":"Pod","name":"a","x":[%s1]}}`, cluster, i, strings.Repeat("1,", values-1))
}

// TestReportsThatAreLargeInMemory checks small bodies that require much memory.
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
		{"their number", Config{LargeReports: 1, LargeBytes: 2_000_000}, "too many large reports are in progress"},
		{"their memory", Config{LargeReports: 3, LargeBytes: 2_000_000, LargeTotal: 5_000_000}, "large reports in progress use too much memory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serveUploads(t, test.config)
			first := s.upload(t, "c1")
			await.Done(t, "the first report is read", first.reading)
			begun := strings.TrimSuffix(body("c1", 6), "]}")
			if len(begun) > 300_000 {
				t.Fatalf("size of the body = %d bytes, want at most 300000", len(begun))
			}
			// The decoder reads ahead, and white space fills its buffer.
			first.send(t, begun+strings.Repeat(" ", 300_000))
			await.True(t, "the first report counts as large", func() bool {
				s.handler.slots.lock.Lock()
				defer s.handler.slots.lock.Unlock()
				return s.handler.slots.held > 4_000_000
			})
			refusedForNow(t, s.post(t, "c2", body("c2", 4)), test.why)
			if resources, _ := s.post(t, "c2", body("c2", 1)).totals(t); resources != 1 {
				t.Errorf("resources after a small report = %d, want 1", resources)
			}
			if resources, _ := first.finish(t, "]}").totals(t); resources != 6 {
				t.Errorf("resources after the first report = %d, want 6", resources)
			}
			// A single large report may exceed the limit of all large reports.
			if resources, _ := s.post(t, "c2", body("c2", 12)).totals(t); resources != 12 {
				t.Errorf("resources after a single large report = %d, want 12", resources)
			}
		})
	}
}

// TestLimitOfValuesFitsClusters checks that clusters of a usual size do not reach the limit of
// values.
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
		t.Errorf("%d resources with %.1f values each exceed the limit of %d values, want them to fit", largest, each, limit)
	}
}

// endless is a report without an end that repeats one resource.
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

// worst returns reports that use as much memory as possible. The key describes the content, and the
// value is the repeated resource.
func worst() map[string]string {
	resource := func(x string) string {
		return `,{"uid":"c1/%d","properties":{"kind":"Pod","name":"a","x":` + x + `}}`
	}
	fields := make([]string, 250)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"p%d":1`, i)
	}
	return map[string]string{
		"lists":          resource("[" + strings.Repeat("1,", 32_000) + "1]"),
		"lists in lists": resource("[" + strings.Repeat("["+strings.Repeat("1,", 31)+"1],", 950) + "1]"),
		"empty lists":    resource("[" + strings.Repeat("[],", 21_000) + "1]"),
		"properties":     `,{"uid":"c1/%d","properties":{"kind":"Pod","name":"a",` + strings.Join(fields, ",") + `}}`,
		"resources":      resource("1"),
		"long texts":     resource(`"` + strings.Repeat("x", 65_000) + `"`),
	}
}

func newEndless(next string) *endless {
	return &endless{head: `{"addResources":[` + strings.TrimPrefix(fmt.Sprintf(next, 0), ","), next: next}
}

// BenchmarkWorstReport measures hostile reports until they are rejected: their counted memory at
// the end, and the peak of the heap.
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
						b.Errorf("Decode() = %v, want ErrTooLarge", err)
					}
				}))
			}
			b.ReportMetric(float64(kept)/1e6, "MB-counted")
			b.ReportMetric(float64(most)/1e6, "MB-heap-peak")
		})
	}
}

// BenchmarkWorstReportsAtOnce measures the maximum number of concurrent hostile reports.
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
								b.Error("Decode() of an endless report = nil, want an error")
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

// peakOf returns the growth of the heap while a function runs.
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

// heapBytes returns the size of the heap, including objects that are not collected yet.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestWordsAreCounted checks that kinds, plurals and relations count towards the memory of a report, although they are
// not part of the properties.
func TestWordsAreCounted(t *testing.T) {
	held := func(kind, plural, relation int) int64 {
		body := fmt.Sprintf(`{"addResources":[{"uid":"c1/a","kind":"%s","resourceString":"%s","properties":{"name":"a"}}],"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"%s"}]}`,
			strings.Repeat("K", kind), strings.Repeat("k", plural), strings.Repeat("t", relation))
		_, response, bytes, err := decode(strings.NewReader(body), "c1", false, true, Limits{}, func(int64) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if refused := refusalsOf(response); refused != "" {
			t.Fatalf("errors = %q, want none", refused)
		}
		return bytes
	}
	if grown := held(201, 901, 101) - held(1, 1, 1); grown != 200+900+100 {
		t.Errorf("growth of the counted memory by 1200 bytes of words = %d, want 1200", grown)
	}
}
