package feed

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// maxReason bounds the reason that a cluster reports.
const maxReason = 512

// calm is the time after a read of a cluster after which the delay before the next read is the shortest again.
const calm = 5 * time.Minute

// cluster is the state of the feed for one cluster. Only the goroutine of Feed.Run uses it.
type cluster struct {
	// version is the version of the engine that the index includes for this cluster.
	version uint64
	// report is nil if the cluster reports no RBAC.
	report *inventory.AccessReport
	// objects is a lower bound of the number of objects with valid content. It is exact after a read. bytes is an upper
	// bound of the length of their content.
	objects, bytes int
	// refused is the reason why the content cannot be used, or empty.
	refused string
	// stale is the reason why the reports are out of date, or empty.
	stale string
	// read is the time of the last read. reread is the time of the next read, or zero.
	read, reread time.Time
	backoff      wait.Backoff
	// state is the state that the index has.
	state access.State
}

// current returns the state of the cluster.
func (c *cluster) current() access.State {
	unknown := func(reason string) access.State { return access.State{Reason: reason} }
	switch {
	case c.stale != "":
		return unknown(c.stale)
	case c.report == nil:
		return unknown("the cluster does not report its roles and bindings")
	case c.refused != "":
		return unknown(c.refused)
	case !c.report.Complete:
		reason := c.report.Reason
		if len(reason) > maxReason {
			reason = reason[:maxReason]
		}
		return unknown(fmt.Sprintf("the report of roles and bindings is not complete: %q", reason))
	case c.objects != c.report.Objects:
		return unknown(fmt.Sprintf("the hub has the content of %d roles and bindings; the cluster reports %d", c.objects, c.report.Objects))
	}
	return access.State{Known: true, OtherAuthorizers: c.report.OtherAuthorizers}
}

// schedule makes the feed read the cluster again. A cluster that requires this frequently is read after a delay.
func (c *cluster) schedule(now time.Time, backoff wait.Backoff) {
	switch {
	case !c.reread.IsZero():
	case c.read.IsZero():
		c.backoff, c.reread = backoff, now
	case c.backoff.Duration == 0, now.Sub(c.read) > calm:
		c.backoff = backoff
		c.reread = now.Add(c.backoff.Step())
	default:
		c.reread = now.Add(c.backoff.Step())
	}
}

// disagrees reports whether a read may find more objects than the changes showed.
func (c *cluster) disagrees() bool {
	return c.report != nil && (c.refused != "" || c.report.Complete && c.objects != c.report.Objects)
}

// content is the content of a cluster at one version.
type content struct {
	cluster string
	version uint64
	update  *access.Update
	report  *inventory.AccessReport
	objects int
	bytes   int
	// refused is the reason why the update is empty.
	refused string
	// hidden is true if readOne has set the state of the cluster to reading.
	hidden bool
}

// reading is the state of a cluster while its content is replaced by content that is not known.
var reading = access.State{Reason: "the server is reading the roles and bindings of the cluster"}

// add adds a resource.
func (c *content) add(d *decoder, resource *search.Resource, maxBytes int) {
	if resource.UID == c.cluster+"/"+inventory.AccessReportID {
		c.report = d.report(resource.Internal)
		return
	}
	key, ok := keyOf(resource.Properties)
	if !ok || c.refused != "" {
		return
	}
	for i := range resource.Internal {
		c.bytes += len(resource.Internal[i].Leaves[0].Text)
	}
	if c.bytes > maxBytes || c.objects >= 2*access.MaxObjects {
		c.refused = fmt.Sprintf("the roles and bindings of the cluster exceed %d bytes or %d objects", maxBytes, 2*access.MaxObjects)
		c.update, c.objects, c.bytes = newUpdate(true), 0, 0
		return
	}
	if d.put(c.update, key, resource.Internal) == nil {
		c.objects++
	}
}

// delta is the effect of one report of a cluster.
type delta struct {
	update *access.Update
	// reported is true if the AccessReport has changed, to report.
	reported bool
	report   *inventory.AccessReport
	// objects and bytes are added to those of the cluster.
	objects, bytes int
}

// newDelta returns the effect of the changes of one version on a cluster, or nil if there is none.
func newDelta(d *decoder, name string, changes []search.Change) *delta {
	result := &delta{update: newUpdate(false)}
	var gone []rbac.Key
	for i := range changes {
		c := &changes[i]
		if c.UID == name+"/"+inventory.AccessReportID {
			result.reported, result.report = true, d.report(c.Internal)
			continue
		}
		before, was := keyOf(c.Before)
		after, is := keyOf(c.After)
		if was && (!is || before != after) {
			gone = append(gone, before)
			result.objects--
		}
		if !is {
			continue
		}
		for j := range c.Internal {
			result.bytes += len(c.Internal[j].Leaves[0].Text)
		}
		valid := d.put(result.update, after, c.Internal) == nil
		switch {
		case !valid:
			gone = append(gone, after)
			if was && before == after {
				result.objects--
			}
		case !was || before != after:
			result.objects++
		}
	}
	for _, key := range gone {
		// The object may have been deleted and created again.
		if isRole(key) {
			if _, again := result.update.Roles[key]; !again {
				result.update.DeletedRoles = append(result.update.DeletedRoles, key)
			}
		} else if _, again := result.update.Bindings[key]; !again {
			result.update.DeletedBindings = append(result.update.DeletedBindings, key)
		}
	}
	if !result.reported && result.empty() {
		return nil
	}
	return result
}

func (d *delta) empty() bool {
	u := d.update
	return len(u.Roles)+len(u.Bindings)+len(u.DeletedRoles)+len(u.DeletedBindings) == 0
}

// byReport splits changes into those of each version. A version is one report of one cluster.
func byReport(changes []search.Change, visit func([]search.Change)) {
	for len(changes) > 0 {
		end := slices.IndexFunc(changes, func(c search.Change) bool { return c.Version != changes[0].Version })
		if end < 0 {
			end = len(changes)
		}
		visit(changes[:end])
		changes = changes[end:]
	}
}
