package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Three goroutines load the files of the clusters. Each of them owns parts of the transaction. One reads and checks
// files, one creates terms for values, and one creates rows.

const (
	// loadRecords is the number of resources per batch. loadBatches is the number of batches.
	loadRecords = 128
	loadBatches = 6
)

// loader reads the files of all clusters into a transaction.
type loader struct {
	*transaction
	store *store
	// known contains the files whose entries a checkpoint contains.
	known map[string]*clusterFile
	// indexed is the number of resources that a checkpoint does not contain.
	indexed int
	// unused, read and encoded pass batches between the goroutines.
	unused, read, encoded chan *loadBatch
	// terms guards the terms, because two goroutines add to their postings.
	terms sync.Mutex
}

// loadBatch is a part of a cluster. It refers to memory of the file.
type loadBatch struct {
	cluster string
	file    *clusterFile
	record  clusterRecord
	// resources is reused, so only the first used elements belong to the batch.
	resources []loadedResource
	used      int
	edges     []entry
	// first and last are true for the first and the last part of a cluster. later is true if the
	// part follows known entries, and unchanged if nothing follows them. damage is the reason why the
	// cluster cannot be used.
	first, last, later, unchanged bool

	damage error
}

// loadedResource is a resource in a file and the row that is created from it.
type loadedResource struct {
	uid        []byte
	deleted    bool
	version    uint64
	properties query.Properties
	leaves     []query.Leaf
	hashes     []uint64
	class      visibility.Class
	data       []byte
	found      parts
}

// load reads the files of all clusters, until ctx ends. The known files are in the state already.
// It returns the number of resources that were not.
func (t *transaction) load(ctx context.Context, s *store, known map[string]*clusterFile) (indexed int, err error) {
	names, err := s.clusters()
	if err != nil {
		return 0, err
	}
	for name := range known {
		if !slices.Contains(names, name) {
			t.forget(name)
		}
	}
	for kind := range s.places {
		s.places[kind] = map[string]int{}
	}
	defer func() { s.places, s.content = [entryKinds]map[string]int{}, nil }()
	l := &loader{
		transaction: t, store: s, known: known,
		unused: make(chan *loadBatch, loadBatches), read: make(chan *loadBatch, loadBatches), encoded: make(chan *loadBatch, loadBatches),
	}
	for range loadBatches {
		l.unused <- &loadBatch{resources: make([]loadedResource, loadRecords)}
	}
	go func() {
		defer close(l.read)
		for _, name := range names {
			if ctx.Err() != nil {
				return
			}
			l.readCluster(name)
		}
	}()
	go func() {
		defer close(l.encoded)
		for batch := range l.read {
			l.encodeBatch(batch)
			l.encoded <- batch
		}
	}()
	for batch := range l.encoded {
		err = errors.Join(err, l.storeOrDrop(batch))
		l.unused <- batch
	}
	return l.indexed, errors.Join(err, ctx.Err())
}

// forget removes a cluster of a checkpoint that was removed or written again later. The version
// includes that change already.
func (t *transaction) forget(name string) {
	version := t.version
	t.removeCluster(name)
	t.version = version
}

// readCluster passes on the parts of a cluster.
func (l *loader) readCluster(name string) {
	entries, damage := l.store.read(name, l.known[name])
	if damage != nil {
		entries = &clusterEntries{}
	}
	for first := true; first || len(entries.resources) > 0; first = false {
		batch := <-l.unused
		*batch = loadBatch{cluster: name, file: entries.file, record: entries.record, resources: batch.resources, first: first, later: entries.later, unchanged: entries.unchanged}
		for batch.used < loadRecords && len(entries.resources) > 0 && damage == nil {
			e := entries.resources[0]
			entries.resources = entries.resources[1:]
			switch {
			case len(e.value) > 0:
				damage = batch.resources[batch.used].read(name, entries.record.Hub, e)
				batch.used++
			case batch.later:
				batch.resources[batch.used].gone(e)
				batch.used++
			}
		}
		if batch.damage = damage; damage != nil {
			batch.used, entries.resources = 0, nil
		}
		if batch.last = len(entries.resources) == 0; batch.last {
			batch.edges = entries.edges
		}
		l.read <- batch
	}
}

func (r *loadedResource) read(cluster string, hub bool, e entry) error {
	var ok bool
	if r.version, r.properties, r.leaves, ok = readRecord(e.value, r.properties[:0], r.leaves[:0]); !ok || !isUID(e.key) {
		return fmt.Errorf("resource %x: %w", e.key, errCorrupt)
	}
	r.uid, r.deleted = e.key, false
	r.class = search.ClassOf(cluster, hub, r.properties)
	r.hashes = appendHashes(r.hashes[:0], r.properties)
	return nil
}

// gone makes r a resource that was deleted.
func (r *loadedResource) gone(e entry) {
	r.uid, r.deleted = e.key, true
}

func (l *loader) encodeBatch(batch *loadBatch) {
	if batch.later {
		return
	}
	l.terms.Lock()
	defer l.terms.Unlock()
	for i := range batch.resources[:batch.used] {
		r := &batch.resources[i]
		r.data = l.rowWriter.encoder.encode(append(r.data[:0], r.uid...), r.properties, r.hashes, &r.found)
	}
}

func (l *loader) storeOrDrop(batch *loadBatch) error {
	damage := batch.damage
	if damage == nil {
		damage = l.storeBatch(batch)
	}
	if damage == nil {
		return nil
	}
	return l.drop(batch.cluster, damage)
}

func (l *loader) storeBatch(batch *loadBatch) error {
	if batch.unchanged {
		l.store.files[batch.cluster] = batch.file
		return nil
	}
	if batch.first && !batch.later && l.known[batch.cluster] != nil {
		l.terms.Lock()
		l.forget(batch.cluster)
		l.terms.Unlock()
	}
	if batch.later {
		l.terms.Lock()
		defer l.terms.Unlock()
	}
	c, counts := l.cluster(batch.cluster, batch.record.Hub), &edgeCounts{}
	for i := range batch.resources[:batch.used] {
		if r := &batch.resources[i]; batch.later {
			l.replay(c, r, counts)
		} else {
			l.indexed++
			l.version = max(l.version, r.version)
			l.rowWriter.fill(l.rowWriter.rowOf(c, r.uid), string(r.data), c, r.class, max(r.version, 1), &r.found)
		}
	}
	if !batch.later && l.index.termRows.full() {
		l.terms.Lock()
		l.index.flush()
		l.terms.Unlock()
	}
	for _, e := range batch.edges {
		if number, known := l.findRow(c.id, e.key); known && batch.later {
			l.edges.removeFrom(c, number, counts)
		}
		if !l.edges.load(c, e, counts) {
			return fmt.Errorf("edges of %x: %w", e.key, errCorrupt)
		}
	}
	if !batch.last {
		return nil
	}
	if batch.later {
		l.sweep(c)
	}
	c.reported, c.incomplete = batch.record.Reported, batch.record.Incomplete
	if resources := c.rows.count(); resources != batch.record.Resources || c.edges != batch.record.Edges {
		return fmt.Errorf("%d resources of %d and %d edges of %d: %w", resources, batch.record.Resources, c.edges, batch.record.Edges, errCorrupt)
	}
	l.store.files[batch.cluster] = batch.file
	return nil
}

// replay applies a resource to the state of a checkpoint.
func (l *loader) replay(c *cluster, r *loadedResource, counts *edgeCounts) {
	l.indexed++
	if r.deleted {
		if number, known := l.findRow(c.id, r.uid); known && l.rows.at(number).exists() {
			l.remove(number, c, counts)
		}
		return
	}
	reached := l.version
	l.version = max(r.version, 1)
	uid := appendUIDText(nil, c.name, bytesAsString(r.uid))
	number, _ := l.rowWriter.put(c, &search.Resource{UID: bytesAsString(uid), Properties: r.properties})
	// The properties may have changed and changed back.
	l.rows.edit(l.id, number).version = l.version
	l.version = max(reached, l.version)
}

// drop removes a cluster whose file is damaged. The cluster is Incomplete until its next full
// report.
func (l *loader) drop(name string, damage error) error {
	l.terms.Lock()
	defer l.terms.Unlock()
	l.removeCluster(name)
	l.cluster(name, false).incomplete = true
	if !errors.Is(damage, errFormat) && !errors.Is(damage, errCorrupt) {
		damage = fmt.Errorf("%w: %w", errCorrupt, damage)
	}
	return l.store.discard(fileName(name), damage)
}
