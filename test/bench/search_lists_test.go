package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// listedLabel selects 15,500 of 500,000 resources.
	listedLabel = "team=team-07"
	listTimes   = 5
	listPath    = searchPath + "fleetresources"
	// watchTimeout bounds the initial events of a watch.
	watchTimeout = 2 * time.Minute
)

// measureLists measures lists and watches of fleetresources as an administrator.
func (h *httpFleet) measureLists(b *testing.B) {
	hub, err := h.Hub.UserConfig("admin", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name   string
		client rest.Interface
	}{{"direct", h.admin}, {"through the hub", restClient(b, hub)}} {
		h.measurePages(b, way.name, way.client)
		h.measureWatch(b, way.name, way.client)
	}
	h.measureKubectl(b)
}

// measureKubectl measures the whole command, with the start of kubectl and its output.
func (h *httpFleet) measureKubectl(b *testing.B) {
	program, err := localhub.Binary(localhub.BinDir(), "kubectl")
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := h.Hub.WriteAdminKubeconfig(kubeconfig); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	rows := 0
	for range listTimes {
		started := time.Now()
		out, err := exec.CommandContext(b.Context(), program, "--kubeconfig="+kubeconfig, "get", "fr", "-A", "--no-headers", "-l", listedLabel).Output()
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(started))
		rows = bytes.Count(out, []byte("\n"))
	}
	report(b, fmt.Sprintf("kubectl get fr -A -l %s, %d rows", listedLabel, rows), "kubectl-get-fr", took)
}

// measurePages measures each page of 500 objects of a list.
func (h *httpFleet) measurePages(b *testing.B, way string, client rest.Interface) {
	var first, last []time.Duration
	for range listTimes {
		var took []time.Duration
		for next := ""; ; {
			started := time.Now()
			body, err := client.Get().AbsPath(listPath).Param("labelSelector", listedLabel).Param("limit", "500").Param("continue", next).DoRaw(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(started))
			var page struct{ Metadata metav1.ListMeta }
			if err := json.Unmarshal(body, &page); err != nil {
				b.Fatal(err)
			}
			if next = page.Metadata.Continue; next == "" {
				break
			}
		}
		// The last page is shorter than the others.
		first = append(first, took[0])
		last = append(last, took[max(0, len(took)-2)])
	}
	report(b, "first page of 500 fleetresources, "+way, "list-first-page", first)
	report(b, "  a late page", "list-late-page", last)
}

// measureWatch measures the initial events of a watch of all Pods.
func (h *httpFleet) measureWatch(b *testing.B, way string, client rest.Interface) {
	var took []time.Duration
	events := 0
	for range listTimes {
		started := time.Now()
		events = initialEvents(b, client)
		took = append(took, time.Since(started))
	}
	report(b, fmt.Sprintf("%d initial events of a watch, %s", events, way), "watch-initial", took)
}

// initialEvents watches all Pods until the bookmark after the initial events. It returns their
// number.
func initialEvents(b *testing.B, client rest.Interface) int {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), watchTimeout)
	defer cancel()
	stream, err := client.Get().AbsPath(listPath).Param("watch", "true").Param("sendInitialEvents", "true").
		Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).Param("allowWatchBookmarks", "true").
		Param("fieldSelector", "kind=Pod").Stream(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewReaderSize(stream, 1<<20)
	for events := 0; ; events++ {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			return events
		}
	}
}

// measureDeltas measures reports of one resource from several clusters.
func (h *httpFleet) measureDeltas(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), underUpdates)
	defer cancel()
	counts := make([]int, min(searchClients, len(h.pods)))
	var sending sync.WaitGroup
	for i := range counts {
		sending.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(i)))
			for ctx.Err() == nil {
				update := fleetgen.Update(r, h.pods[i], 1)
				if _, err := h.sync(b.Context(), &update, false); err != nil {
					b.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	sending.Wait()
	total := 0
	for _, count := range counts {
		total += count
	}
	rate := float64(total) / underUpdates.Seconds()
	b.ReportMetric(rate, "http-deltas/s")
	fmt.Printf("reports of one resource over HTTP from %d clusters: %.0f/s\n", len(counts), rate)
}
