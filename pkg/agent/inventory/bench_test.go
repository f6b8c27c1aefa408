package inventory

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// benchmarkObjects is the number of objects in the cluster of the benchmarks.
const benchmarkObjects = 5000

func benchmarkPod(i int) *unstructured.Unstructured {
	app := fmt.Sprint("app-", i%60)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": fmt.Sprintf("%s-7d9f8b6c5d-%05d", app, i), "namespace": fmt.Sprint("tenant-", i%40), "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			"creationTimestamp": "2026-01-01T00:00:00Z",
			"labels": map[string]any{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/version": "1.2.3",
				"app.kubernetes.io/managed-by": "Helm", "team": "team-07", "env": "prod", "pod-template-hash": "7d9f8b6c5d"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true, "uid": fmt.Sprintf("00000000-0000-4000-8000-9%011d", i%60)}},
		},
		"spec": map[string]any{
			"nodeName": fmt.Sprint("node-", i%14), "serviceAccountName": "default",
			"containers": []any{map[string]any{"name": app, "image": "quay.io/team/" + app + ":1.2.3"}, map[string]any{"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1.20"}},
			"volumes":    []any{map[string]any{"name": "c", "configMap": map[string]any{"name": app}}},
		},
		"status": map[string]any{
			"phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "startTime": "2026-01-01T00:00:00Z",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Initialized", "status": "True"},
				map[string]any{"type": "ContainersReady", "status": "True"}, map[string]any{"type": "PodScheduled", "status": "True"}},
		},
	}}
}

func benchmarkExtractor(b *testing.B) *extractor {
	settings, err := (&Configuration{}).Settings()
	if err != nil {
		b.Fatal(err)
	}
	e, err := newExtractor("cluster-001", &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, kind: "Pod", reported: true}, settings)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkMemory measures the memory that remains in use per object.
func BenchmarkMemory(b *testing.B) {
	e := benchmarkExtractor(b)
	for b.Loop() {
		b.StopTimer()
		before := heap()
		s := newState()
		b.StartTimer()
		for i := range benchmarkObjects {
			r, err := e.extract(benchmarkPod(i))
			if err != nil {
				b.Fatal(err)
			}
			s.put(r)
		}
		for i := range 14 {
			s.put(&record{resource: core("nodes", "Node"), uid: fmt.Sprint("cluster-001/node-", i), name: fmt.Sprint("node-", i), properties: []byte("{}")})
		}
		b.StopTimer()
		s.begin(true)
		s.applied()
		b.ReportMetric(float64(heap()-before)/benchmarkObjects, "B/object")
		b.ReportMetric(float64(s.backlog().Edges)/benchmarkObjects, "edges/object")
		runtime.KeepAlive(s)
		b.StartTimer()
	}
	b.ReportMetric(float64(benchmarkObjects*b.N)/b.Elapsed().Seconds(), "objects/s")
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkFullReport measures the time to encode and compress a full report.
func BenchmarkFullReport(b *testing.B) {
	e := benchmarkExtractor(b)
	s := newState()
	for i := range benchmarkObjects {
		r, err := e.extract(benchmarkPod(i))
		if err != nil {
			b.Fatal(err)
		}
		s.put(r)
	}
	h, err := newHub(&rest.Config{}, "cluster-001")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		full := s.begin(true)
		size := &counter{}
		if err := h.encode(size, full); err != nil {
			b.Fatal(err)
		}
		s.applied()
		b.ReportMetric(float64(size.bytes), "B/report")
	}
	b.ReportMetric(float64(benchmarkObjects*b.N)/b.Elapsed().Seconds(), "objects/s")
}

type counter struct{ bytes int }

func (c *counter) Write(data []byte) (int, error) {
	c.bytes += len(data)
	return len(data), nil
}
