package fleetresource

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	searchwatch "open-cluster-management.io/hub-apiserver/pkg/search/watch"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// largeResource is the approximate size of the properties of a resource of reportLarge.
const largeResource = 50_000

// reportLarge reports large resources of the cluster north.
func reportLarge(t *testing.T, fleet *REST, resources int) {
	t.Helper()
	report := &search.Report{Cluster: "north", Full: true, Time: time.Now()}
	for i := range resources {
		properties, err := query.DecodeProperties(fmt.Appendf(nil, `{"kind":"Blob","name":"%d","text":"%d%s"}`, i, i, strings.Repeat("x", largeResource)))
		if err != nil {
			t.Fatal(err)
		}
		report.Put = append(report.Put, search.Resource{UID: fmt.Sprint("north/", i), Properties: properties})
	}
	if _, err := fleet.Engine.Apply(t.Context(), report); err != nil {
		t.Fatal(err)
	}
}

func version(t *testing.T, fleet *REST) string {
	t.Helper()
	version, err := fleet.Engine.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(version)
}

// counted returns the memory that the metric reports.
func counted(t *testing.T) int64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "hub_apiserver_search_watch_memory_bytes" {
			return int64(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return 0
}

// heap returns the memory of all objects that are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// full waits until the watch waits for its client.
func full(t *testing.T, stream watch.Interface) {
	t.Helper()
	await.True(t, "the watch waits for its client", func() bool { return len(stream.ResultChan()) == cap(stream.ResultChan()) })
}

// TestUnreadWatchesAreCounted checks that the metric contains the memory of watches whose clients do not read, both of
// initial events and of later ones, and that nothing is counted after they have ended.
func TestUnreadWatchesAreCounted(t *testing.T) {
	const watches = 20
	for name, initial := range map[string]bool{"initial events": true, "changes": false} {
		t.Run(name, func(t *testing.T) {
			fleet := newFleet(t)
			fleet.WatchMemory = searchwatch.NewMemory(1<<30, "search-watch-memory-bytes")
			options := &metainternalversion.ListOptions{SendInitialEvents: &initial}
			if initial {
				reportLarge(t, fleet, 1100)
			} else {
				options.ResourceVersion = version(t, fleet)
			}
			var streams []watch.Interface
			for range watches {
				stream, err := fleet.Watch(in(t, ""), options)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, stream)
			}
			if !initial {
				reportLarge(t, fleet, 1100)
			}
			for _, stream := range streams {
				full(t, stream)
			}
			// No client is connected, whose memory is counted as well.
			got, held := counted(t)-watches*(64<<10), heap()
			for _, stream := range streams {
				stream.Stop()
			}
			held -= heap()
			if got < held*8/10 || got > held*12/10 {
				t.Errorf("counted memory of %d unread watches = %d, want the %d that they hold, within 20 %%", watches, got, held)
			}
			if most := int64(watches * 20 * largeResource); held > most {
				t.Errorf("memory of %d unread watches = %d, want at most %d", watches, held, most)
			}
			if got := counted(t); got != 0 {
				t.Errorf("counted memory after the watches have ended = %d, want 0", got)
			}
		})
	}
}

// TestUnreadWatchesEnd checks that a watch that exceeds the memory of its caller ends, because the caller has another one
// that it does not read, and that the client receives the error even if it has not received earlier events.
func TestUnreadWatchesEnd(t *testing.T) {
	fleet := newFleet(t)
	reportLarge(t, fleet, 100)
	fleet.WatchMemory = searchwatch.NewMemory(1280<<10, "search-watch-memory-bytes")
	begin := func() *eventStream {
		stream, err := fleet.Watch(in(t, ""), &metainternalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Stop)
		return stream.(*eventStream)
	}
	unread := begin()
	full(t, unread)
	second := begin()
	second.running.Wait()
	event := <-second.ResultChan()
	status, is := event.Object.(*metav1.Status)
	if !is || !apierrors.IsTooManyRequests(&apierrors.StatusError{ErrStatus: *status}) {
		t.Errorf("event after the end of a watch = %s %v, want an error with status 429", event.Type, event.Object)
	}
	if _, open := <-second.ResultChan(); open {
		t.Error("events after the error = some, want none")
	}
	unread.Stop()
	if got := counted(t); got != 0 {
		t.Errorf("counted memory after the watches have ended = %d, want 0", got)
	}
}
