package ingest

import (
	"fmt"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// usage knows how much of search each cluster uses: as many resources as the engine has
// stored, and about as much memory as its last full report and the changes since take. What
// changes replace is counted until the next full report, so that a cluster that changes much
// is asked for one.
type usage struct {
	resources int
	bytes     int64

	lock     sync.Mutex
	clusters map[string]used
}

type used struct {
	resources int
	bytes     int64
}

// exceeded is how many resources and bytes a cluster would use with a report, and whether that
// is more than it may.
func (u *usage) exceeded(report *search.Report, bytes int64, known search.ClusterState) (used, bool) {
	u.lock.Lock()
	defer u.lock.Unlock()
	before, counted := u.clusters[report.Cluster]
	if !counted {
		before.resources = known.Resources
	}
	with := used{resources: len(report.Put), bytes: bytes}
	if !report.Full {
		with.resources = max(0, before.resources+len(report.Put)-len(report.Delete))
		with.bytes += before.bytes
		if len(report.Put)+len(report.AddEdges) == 0 {
			return with, false
		}
	}
	// A cluster that was over a limit before, since that was lowered, may shrink.
	return with, with.resources > max(u.resources, before.resources) || with.bytes > max(u.bytes, before.bytes)
}

// set counts a report that is stored.
func (u *usage) set(cluster string, resources int, bytes int64) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.clusters[cluster] = used{resources: resources, bytes: bytes}
}

// forget forgets a cluster that is removed.
func (u *usage) forget(cluster string) {
	u.lock.Lock()
	defer u.lock.Unlock()
	delete(u.clusters, cluster)
}

func (u *usage) refusal(cluster string, with used) error {
	overQuota.Inc()
	return fmt.Errorf("%w: with it, cluster %q would use %d resources and %d bytes of memory in search, and may use %d resources (--search-cluster-max-resources) and %d bytes (--search-cluster-max-bytes): report less, or ask an administrator to raise the limit",
		ErrTooLarge, cluster, with.resources, with.bytes, u.resources, u.bytes)
}
