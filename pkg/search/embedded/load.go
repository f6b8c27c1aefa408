package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Three goroutines load the data. Each of them owns parts of the transaction. One reads and checks
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
	// last is true for the last part of a cluster. damage is the reason why the cluster cannot be
	// used.
	last   bool
	damage error
}

// loadedResource is a resource in a file and the row that is created from it.
type loadedResource struct {
	uid        []byte
	version    uint64
	properties query.Properties
	leaves     []query.Leaf
	hashes     []uint64
	class      visibility.Class
	data       []byte
	found      parts
}

// load reads the files of all clusters, until ctx ends.
func (t *transaction) load(ctx context.Context, s *store) error {
	names, err := s.clusters()
	if err != nil {
		return err
	}
	l := &loader{
		transaction: t, store: s,
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
	return errors.Join(err, ctx.Err())
}

// readCluster passes on the parts of a cluster.
func (l *loader) readCluster(name string) {
	entries, damage := l.store.read(name)
	if damage != nil {
		entries = &clusterEntries{}
	}
	for first := true; first || len(entries.resources) > 0; first = false {
		batch := <-l.unused
		*batch = loadBatch{cluster: name, file: entries.file, record: entries.record, resources: batch.resources}
		for batch.used < loadRecords && len(entries.resources) > 0 && damage == nil {
			e := entries.resources[0]
			entries.resources = entries.resources[1:]
			if len(e.value) > 0 {
				damage = batch.resources[batch.used].read(name, entries.record.Hub, e)
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
	r.uid = e.key
	r.class = search.ClassOf(cluster, hub, r.properties)
	r.hashes = appendHashes(r.hashes[:0], r.properties)
	return nil
}

func (l *loader) encodeBatch(batch *loadBatch) {
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
	c := l.cluster(batch.cluster, batch.record.Hub)
	for i := range batch.resources[:batch.used] {
		r := &batch.resources[i]
		l.version = max(l.version, r.version)
		l.rowWriter.fill(l.rowWriter.rowOf(c, r.uid), string(r.data), c, r.class, max(r.version, 1), &r.found)
	}
	if l.index.termRows.full() {
		l.terms.Lock()
		l.index.flush()
		l.terms.Unlock()
	}
	counts := &edgeCounts{}
	for _, e := range batch.edges {
		if !l.edges.load(c, e, counts) {
			return fmt.Errorf("edges of %x: %w", e.key, errCorrupt)
		}
	}
	if !batch.last {
		return nil
	}
	c.reported, c.incomplete = batch.record.Reported, batch.record.Incomplete
	if resources := c.rows.count(); resources != batch.record.Resources || c.edges != batch.record.Edges {
		return fmt.Errorf("%d resources of %d and %d edges of %d: %w", resources, batch.record.Resources, c.edges, batch.record.Edges, errCorrupt)
	}
	l.store.files[batch.cluster] = batch.file
	return nil
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
