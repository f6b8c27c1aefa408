package feed

import (
	"fmt"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// maxReason bounds the reason that a cluster reports.
const maxReason = 512

const (
	// A cluster is read again at the earliest after pauseFactor times the duration of the previous read and its update of
	// the index, but at most maxPause, so that a cluster whose RBAC is large and changes all the time takes little of the
	// processor.
	pauseFactor = 20
	maxPause    = 10 * time.Second
)

// cluster is the state of the feed for one cluster. Only the goroutine of Feed.Run uses it.
type cluster struct {
	// version is the version of the engine that the index includes for this cluster, and latest that of its last change.
	version, latest uint64
	// problem is the reason why the content is not used, and stale the reason why it is out of date. Both may be empty.
	problem, stale   string
	otherAuthorizers bool
	// since is the time of the first change that the index does not include, or zero. next is the earliest time of the next
	// read, and took the duration of the last one.
	since, next time.Time
	took        time.Duration
	// state is the state that the index has.
	state access.State
}

func (c *cluster) current() access.State {
	switch {
	case c.stale != "":
		return access.State{Reason: c.stale}
	case c.problem != "":
		return access.State{Reason: c.problem}
	case !c.since.IsZero() && time.Since(c.since) > maxLag:
		return access.State{Reason: behindReason}
	}
	return access.State{Known: true, OtherAuthorizers: c.otherAuthorizers}
}

// finish changes the state after a read.
func (c *cluster) finish(read *content, maxBytes int) {
	c.version, c.took, c.problem = read.version, read.took, read.problem(maxBytes)
	c.next = time.Now().Add(min(pauseFactor*c.took, maxPause))
	if c.since = (time.Time{}); c.latest > c.version {
		// The change was made while the cluster was read.
		c.since = read.start
	}
	if c.problem == "" {
		c.otherAuthorizers = read.report.OtherAuthorizers
	}
}

// content is the content of a cluster at one version.
type content struct {
	cluster string
	// owner is the state of the cluster for which it is read.
	owner   *cluster
	version uint64
	update  *access.Update
	// report is nil if the cluster reports no RBAC.
	report *inventory.AccessReport
	// bytes is the length of the content of its objects.
	bytes int
	// exceeds is true if the content exceeds a limit. The update is then incomplete.
	exceeds bool
	start   time.Time
	took    time.Duration
	err     error
}

func (c *content) add(d *decoder, resource *search.Resource, maxBytes int) {
	if resource.UID == c.cluster+"/"+inventory.AccessReportID {
		c.report = d.report(resource.Internal)
		return
	}
	key, ok := keyOf(resource.Properties)
	if !ok || c.exceeds {
		return
	}
	for i := range resource.Internal {
		c.bytes += len(resource.Internal[i].Leaves[0].Text)
	}
	if d.put(c.update, key, resource.Internal) {
		c.bytes += len(key.Namespace) + len(key.Name)
	}
	c.exceeds = c.bytes > maxBytes || len(c.update.Roles) > access.MaxObjects || len(c.update.Bindings) > access.MaxObjects
}

// problem returns the reason why the content cannot be used, or "".
func (c *content) problem(maxBytes int) string {
	objects := len(c.update.Roles) + len(c.update.Bindings)
	switch {
	case c.report == nil:
		return "the cluster does not report its roles and bindings"
	case c.exceeds:
		return fmt.Sprintf("the roles and bindings of the cluster exceed the limits of %d roles, %d bindings and %d bytes", access.MaxObjects, access.MaxObjects, maxBytes)
	case !c.report.Complete:
		reason := c.report.Reason
		if len(reason) > maxReason {
			reason = reason[:maxReason]
		}
		return fmt.Sprintf("the report of roles and bindings is not complete: %q", reason)
	case objects != c.report.Objects:
		return fmt.Sprintf("the hub has the content of %d roles and bindings; the cluster reports %d", objects, c.report.Objects)
	}
	return ""
}

// concerns reports whether a change may affect the RBAC of its cluster.
func concerns(c *search.Change) bool {
	_, before := keyOf(c.Before)
	_, after := keyOf(c.After)
	return before || after || c.UID == c.Cluster+"/"+inventory.AccessReportID
}
