package embedded_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// TestChangesAfterANewVersion checks that changes can be requested after every version that a caller can see.
func TestChangesAfterANewVersion(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	report := func(n int) *search.Report {
		return &search.Report{Cluster: "c1", Time: time.Now(), Full: n == 0, Put: []search.Resource{
			{UID: "c1/a", Properties: query.Properties{{Name: "name", Type: query.String, Leaves: []query.Leaf{{Text: fmt.Sprint(n)}}}}},
		}}
	}
	apply(t, engine, report(0))
	// Changes does not wait for changes if its context has ended.
	atOnce, cancel := context.WithCancel(t.Context())
	cancel()
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				version, err := engine.Version(t.Context())
				if err == nil {
					_, _, err = search.WholeChanges(atOnce, engine, version, 1)
				}
				if err != nil {
					t.Errorf("Changes(%d) = %v, want nil", version, err)
					return
				}
			}
		})
	}
	for n := range 300 {
		apply(t, engine, report(n+1))
	}
	close(done)
	readers.Wait()
}
