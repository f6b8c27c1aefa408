package embedded

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// check returns an error if a report is not valid.
func check(report *search.Report) error {
	if report.Cluster == "" {
		return errors.New("the report does not name a cluster")
	}
	if strings.Contains(report.Cluster, "/") {
		return fmt.Errorf("%q is not a name of a cluster: it contains a slash", report.Cluster)
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

// checkUID returns an error if a UID does not belong to a resource of the cluster.
func checkUID(cluster, uid string) error {
	var encoded [64]byte
	if _, ok := appendUID(encoded[:0], cluster, uid); !ok {
		return fmt.Errorf("UID %q does not belong to cluster %q", uid, cluster)
	}
	return nil
}

// roomFor returns an error if there are not enough free numbers for a report.
func (s *state) roomFor(report *search.Report) error {
	leaves := 0
	for i := range report.Put {
		for j := range report.Put[i].Properties {
			leaves += max(1, len(report.Put[i].Properties[j].Leaves))
		}
		leaves += len(report.Put[i].Internal)
	}
	rows := len(report.Put) + 2*len(report.AddEdges)
	if s.fields.len()+leaves > fieldLimit || s.terms.len()+leaves > math.MaxUint32/2 || s.rows.len()+rows > math.MaxUint32/2 {
		return errors.New("the number of properties, values or resources exceeds the limit of the engine")
	}
	return nil
}

// apply applies a report that has been checked.
func (t *transaction) apply(report *search.Report) (*search.Applied, error) {
	if err := t.state.roomFor(report); err != nil {
		return nil, err
	}
	t.state.version++
	c := t.cluster(report.Cluster, report.Hub)
	applied := &search.Applied{Version: t.state.version}
	counts := newEdgeCounts()
	kept := make([]uint32, 0, len(report.Put))
	for i := range report.Put {
		number, outcome := t.rowWriter.put(c, &report.Put[i])
		kept = append(kept, number)
		switch outcome {
		case added:
			applied.Added++
		case updated:
			applied.Updated++
		}
	}
	for _, number := range t.state.goneBy(c, report, kept) {
		if t.state.rows.at(number).exists() {
			t.remove(number, c, counts)
			applied.Deleted++
		}
	}
	if report.Full {
		t.edges.keepOnly(c, report.AddEdges, counts)
		c.incomplete = false
	} else {
		for i := range report.DeleteEdges {
			t.edges.remove(c, &report.DeleteEdges[i], counts)
		}
	}
	for i := range report.AddEdges {
		t.edges.add(c, t.edges.key(c, &report.AddEdges[i]), counts)
	}
	t.sweep(c)
	if !report.Time.IsZero() {
		c.reported = report.Time
	}
	t.journal.stored.cluster(c.id)
	applied.EdgesAdded, applied.EdgesDeleted = len(counts.added), len(counts.removed)
	applied.Resources, applied.Edges = c.rows.count(), c.edges
	return applied, nil
}

// remove removes a resource and its edges.
func (t *transaction) remove(number uint32, c *cluster, counts *edgeCounts) {
	t.edges.removeRow(c, number, counts)
	t.rowWriter.remove(number, c)
}

// sweep removes what the changes of a cluster have made unused.
func (t *transaction) sweep(c *cluster) {
	t.edges.dropIndexes()
	t.edges.removeUnused()
	t.rowWriter.freeUnreferenced(c)
	t.rowWriter.class.removeEmpty(c)
}

// goneBy returns the rows that a report deletes, in the order of their UIDs. kept are the rows that
// it puts.
func (s *state) goneBy(c *cluster, report *search.Report, kept []uint32) []uint32 {
	var gone []uint32
	var uid []byte
	for _, reported := range report.Delete {
		var ok bool
		if uid, ok = appendUID(uid[:0], c.name, reported); !ok {
			continue
		}
		if number, known := s.findRow(c.id, uid); known && s.rows.at(number).exists() {
			gone = append(gone, number)
		}
	}
	if report.Full {
		if uid, ok := appendUID(uid[:0], c.name, report.Keep); ok {
			if number, known := s.findRow(c.id, uid); known {
				kept = append(kept, number)
			}
		}
		gone = append(gone, missing(c, kept)...)
	}
	slices.SortFunc(gone, s.compareUIDs)
	return slices.Compact(gone)
}

// missing returns the rows of a cluster that a full report does not contain.
func missing(c *cluster, kept []uint32) []uint32 {
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

// cluster returns a cluster that the transaction is allowed to change. It creates the cluster if it
// is new.
func (t *transaction) cluster(name string, hub bool) *cluster {
	id, known := t.state.clusterNames[name]
	if !known {
		name = strings.Clone(name)
		id = uint32(len(t.state.clusters))
		t.state.clusterNames = maps.Clone(t.state.clusterNames)
		t.state.clusterNames[name] = id
		t.ownClusterList()
		t.state.clusters = append(t.state.clusters, &cluster{
			owner: t.id, id: id, name: name, hub: hub, pending: t.rowWriter.class.newPending(name, id),
		})
	}
	c := t.editCluster(id)
	c.present = true
	if c.hub != hub {
		c.hub = hub
		t.rowWriter.reclassify(c)
	}
	return c
}

func (t *transaction) ownClusterList() {
	if !t.ownClusters {
		t.state.clusters, t.ownClusters = slices.Clone(t.state.clusters), true
	}
}

// editCluster returns a cluster that the transaction is allowed to change.
func (t *transaction) editCluster(id uint32) *cluster {
	c := t.state.clusters[id]
	if c.owner != t.id {
		owned := *c
		owned.owner = t.id
		c = &owned
		t.ownClusterList()
		t.state.clusters[id] = c
	}
	return c
}

// removeCluster removes a cluster and its resources.
func (t *transaction) removeCluster(name string) {
	id, known := t.state.clusterNames[name]
	if !known || !t.state.clusters[id].present {
		return
	}
	t.state.version++
	c := t.editCluster(id)
	counts := newEdgeCounts()
	t.edges.keepOnly(c, nil, counts)
	gone := c.rows.asBitmap().ToArray()
	slices.SortFunc(gone, t.state.compareUIDs)
	for _, number := range gone {
		t.remove(number, c, counts)
	}
	t.sweep(c)
	c.present, c.incomplete, c.hub = false, false, false
	*t.journal.stored.cluster(id) = storedCluster{removed: true}
}
