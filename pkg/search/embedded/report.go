package embedded

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// check tells whether a report can be applied. Nothing after it fails but the disk.
func check(report *search.Report) error {
	if report.Cluster == "" {
		return errors.New("the report does not name its cluster")
	}
	if strings.Contains(report.Cluster, "/") {
		return fmt.Errorf("%q is not the name of a cluster", report.Cluster)
	}
	for i := range report.Put {
		if err := checkUID(report.Cluster, report.Put[i].UID); err != nil {
			return fmt.Errorf("resource %d: %w", i, err)
		}
	}
	for _, edges := range [...][]search.Edge{report.AddEdges, report.DeleteEdges} {
		for i := range edges {
			if err := errors.Join(checkUID(report.Cluster, edges[i].SourceUID), checkUID(report.Cluster, edges[i].DestUID)); err != nil {
				return fmt.Errorf("edge %d: %w", i, err)
			}
		}
	}
	return nil
}

// checkUID keeps a cluster to its own resources.
func checkUID(cluster, uid string) error {
	if rest, found := strings.CutPrefix(uid, cluster); found && len(rest) > 1 && rest[0] == '/' {
		return nil
	}
	if rest, found := strings.CutPrefix(uid, clusterUIDPrefix); found && rest == cluster {
		return nil
	}
	return fmt.Errorf("the UID %q is not one of the cluster %q", uid, cluster)
}

// roomFor tells whether there are numbers left for a report.
func (t *transaction) roomFor(report *search.Report) error {
	leaves := 0
	for i := range report.Put {
		for j := range report.Put[i].Properties {
			leaves += max(1, len(report.Put[i].Properties[j].Leaves))
		}
	}
	rows := len(report.Put) + 2*len(report.AddEdges)
	if t.state.fields.len()+leaves > fieldLimit || t.terms.len()+leaves > math.MaxUint32/2 || t.rows.len()+rows > math.MaxUint32/2 {
		return errors.New("there are too many different properties or resources")
	}
	return nil
}

// apply applies a report that was checked.
func (t *transaction) apply(report *search.Report) (*search.Applied, error) {
	if err := t.roomFor(report); err != nil {
		return nil, err
	}
	t.version++
	c := t.cluster(report.Cluster, report.Hub)
	applied := &search.Applied{Version: t.version}
	edges := &edgeCounts{}
	// What a cluster reports first is likely to last.
	t.rowSlab.share(c.rows.empty())
	defer t.rowSlab.share(false)
	kept := make([]uint32, 0, len(report.Put))
	for i := range report.Put {
		number, outcome := t.put(c, &report.Put[i])
		kept = append(kept, number)
		switch outcome {
		case added:
			applied.Added++
		case updated:
			applied.Updated++
		}
	}
	for _, number := range t.goneBy(c, report, kept) {
		if t.rows.at(number).exists() {
			t.remove(number, c, edges)
			applied.Deleted++
		}
	}
	if report.Full {
		t.keepEdges(c, report.AddEdges, edges)
		c.incomplete = false
	} else {
		for i := range report.DeleteEdges {
			t.deleteEdge(c, &report.DeleteEdges[i], edges)
		}
	}
	for i := range report.AddEdges {
		t.addEdge(c, &report.AddEdges[i], edges)
	}
	t.freeLoose(c)
	c.reported = report.Time
	t.stored.cluster(c.id)
	applied.EdgesAdded, applied.EdgesDeleted = len(edges.added)+edges.fresh, len(edges.removed)
	applied.Resources, applied.Edges = c.rows.count(), c.edges
	return applied, nil
}

// goneBy are the rows that a report deletes, in the order of their UIDs; kept are those that it puts.
func (t *transaction) goneBy(c *cluster, report *search.Report, kept []uint32) []uint32 {
	var gone []uint32
	for _, uid := range report.Delete {
		encoded, ok := appendUID(t.scratch.uid[:0], c.name, uid)
		t.scratch.uid = encoded
		if !ok {
			continue
		}
		if number, known := t.findRow(c.id, encoded); known && t.rows.at(number).exists() {
			gone = append(gone, number)
		}
	}
	if report.Full {
		gone = append(gone, t.missing(c, kept)...)
	}
	slices.SortFunc(gone, t.compareUIDs)
	return slices.Compact(gone)
}

// missing are the rows of a cluster that a full report does not have.
func (t *transaction) missing(c *cluster, kept []uint32) []uint32 {
	slices.Sort(kept)
	var missing []uint32
	c.rows.each(func(number uint32) bool {
		for len(kept) > 0 && kept[0] < number {
			kept = kept[1:]
		}
		if len(kept) == 0 || kept[0] != number {
			missing = append(missing, number)
		}
		return true
	})
	return missing
}

// cluster gives a cluster to be changed; it is made if it is new.
func (t *transaction) cluster(name string, hub bool) *cluster {
	id, known := t.clusterNames[name]
	if !known {
		t.clusterNames = cloneMap(t.clusterNames)
		name = strings.Clone(name)
		id = uint32(len(t.clusters))
		t.clusterNames[name] = id
		t.ownClusterList()
		t.clusters = append(t.clusters, &cluster{owner: t.id, id: id, name: name, hub: hub})
		c := t.clusters[id]
		c.pending = uint32(t.classes.len())
		*t.classes.edit(t.id, c.pending) = class{class: visibility.Class{Cluster: name}, cluster: id, pending: true}
	}
	c := t.editCluster(id)
	c.present = true
	if c.hub != hub {
		c.hub = hub
		t.reclassify(c)
	}
	return c
}

func (t *transaction) ownClusterList() {
	if !t.ownClusters {
		t.clusters, t.ownClusters = slices.Clone(t.clusters), true
	}
}

func (t *transaction) editCluster(id uint32) *cluster {
	c := t.clusters[id]
	if c.owner != t.id {
		owned := *c
		owned.owner = t.id
		c = &owned
		t.ownClusterList()
		t.clusters[id] = c
	}
	return c
}

// reclassify follows a change of whether a cluster is the hub.
func (t *transaction) reclassify(c *cluster) {
	c.rows.each(func(number uint32) bool {
		r := *t.rows.at(number)
		in := search.ClassOf(c.name, c.hub, t.decoded(r.data))
		t.leaveClass(number, r.class, c)
		id := t.class(c, in)
		t.classes.edit(t.id, id).rows.add(t.id, number)
		t.rows.edit(t.id, number).class = id
		if secret(in) {
			c.secrets.add(t.id, number)
		} else {
			c.secrets.remove(t.id, number)
		}
		t.moved = append(t.moved, number)
		return true
	})
}

// removeCluster forgets a cluster.
func (t *transaction) removeCluster(name string) {
	id, known := t.clusterNames[name]
	if !known || !t.clusters[id].present {
		return
	}
	t.version++
	c := t.editCluster(id)
	counts := &edgeCounts{}
	t.keepEdges(c, nil, counts)
	gone := c.rows.asBitmap().ToArray()
	slices.SortFunc(gone, t.compareUIDs)
	for _, number := range gone {
		t.remove(number, c, counts)
	}
	t.freeLoose(c)
	c.present, c.incomplete, c.hub = false, false, false
	*t.stored.cluster(id) = storedCluster{removed: true}
}
