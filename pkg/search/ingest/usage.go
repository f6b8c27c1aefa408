package ingest

import (
	"fmt"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// usage tracks the use of search by each cluster: the number of stored resources, and the
// approximate memory of the last full report and of the changes since then. Replaced resources
// count until the next full report, so a cluster with many changes is requested to send one.
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

// exceeded returns the resources and bytes that a cluster would use with a report, and reports
// whether they exceed its limits.
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
	// If a limit was lowered, a cluster that exceeds it may still shrink.
	return with, with.resources > max(u.resources, before.resources) || with.bytes > max(u.bytes, before.bytes)
}

// set records a stored report.
func (u *usage) set(cluster string, resources int, bytes int64) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.clusters[cluster] = used{resources: resources, bytes: bytes}
}

// forget removes the record of a cluster.
func (u *usage) forget(cluster string) {
	u.lock.Lock()
	defer u.lock.Unlock()
	delete(u.clusters, cluster)
}

func (u *usage) refusal(cluster string, with used) error {
	overQuota.Inc()
	return fmt.Errorf("%w: cluster %q would use %d resources and %d bytes of memory in search; its limits are %d resources (--search-cluster-max-resources) and %d bytes (--search-cluster-max-bytes): report less, or ask an administrator to raise the limits",
		ErrTooLarge, cluster, with.resources, with.bytes, u.resources, u.bytes)
}
