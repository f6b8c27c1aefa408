package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Loading is done by three goroutines, each of which has parts of the transaction to itself: one reads and
// checks records, one makes terms of their values, and one makes rows of these.

const (
	// loadRecords is how many resources go from one to the next at a time, and loadBatches how
	// many times as many there are.
	loadRecords = 128
	loadBatches = 6
)

// loader reads everything into a transaction.
type loader struct {
	*transaction
	ctx context.Context
	// unused, read and encoded pass batches on.
	unused, read, encoded chan *loadBatch
	// terms is held by whoever uses the terms: the rows of terms are added to them now and then.
	terms sync.Mutex
}

// loadBatch is a part of a cluster. What it refers to is memory of the file.
type loadBatch struct {
	name   string
	record clusterRecord
	// resources are reused, so those of the batch are the first.
	resources []loadedResource
	used      int
	edges     []pair
	// last is true for the last part of a cluster.
	last bool
}

// loadedResource is a resource as it is read, and what a row with it is found by.
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

// load reads everything into a transaction.
func (t *transaction) load(tx *bbolt.Tx) error {
	version, present, found, err := readVersion(tx)
	if err != nil || !found {
		return err
	}
	t.version = max(version, 1)
	group, ctx := errgroup.WithContext(context.Background())
	l := &loader{
		transaction: t, ctx: ctx,
		unused: make(chan *loadBatch, loadBatches), read: make(chan *loadBatch, loadBatches), encoded: make(chan *loadBatch, loadBatches),
	}
	for range loadBatches {
		l.unused <- &loadBatch{resources: make([]loadedResource, loadRecords)}
	}
	t.rowSlab.share(true)
	defer t.rowSlab.share(false)
	for _, step := range [...]func() error{func() error { return l.readClusters(tx) }, l.encodeAll, l.storeAll} {
		group.Go(func() error { return guarded(step) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(t.clusters) != present {
		return fmt.Errorf("%d clusters of %d: %w", len(t.clusters), present, errCorrupt)
	}
	return nil
}

// send passes a batch on.
func (l *loader) send(to chan<- *loadBatch, batch *loadBatch) error {
	select {
	case to <- batch:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// next is the next batch; nil after the last.
func (l *loader) next(from <-chan *loadBatch) (*loadBatch, error) {
	select {
	case batch := <-from:
		return batch, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

// readClusters reads all clusters, and closes what it passes them on with.
func (l *loader) readClusters(tx *bbolt.Tx) error {
	defer close(l.read)
	clusters := tx.Bucket(bucketClusters)
	if clusters == nil {
		return nil
	}
	return clusters.ForEachBucket(func(name []byte) error {
		if err := l.readCluster(strings.Clone(string(name)), clusters.Bucket(name)); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		return nil
	})
}

func (l *loader) readCluster(name string, bucket *bbolt.Bucket) error {
	value, err := unsealed(name, bucketClusters, keyState, bucket.Get(keyState))
	if err != nil {
		return err
	}
	var record clusterRecord
	if err := json.Unmarshal(value, &record); err != nil {
		return fmt.Errorf("state: %w: %w", errCorrupt, err)
	}
	begin := func() (*loadBatch, error) {
		batch, err := l.next(l.unused)
		if err == nil {
			batch.name, batch.record, batch.used, batch.edges, batch.last = name, record, 0, batch.edges[:0], false
		}
		return batch, err
	}
	batch, err := begin()
	if err != nil {
		return err
	}
	if resources := bucket.Bucket(bucketResources); resources != nil {
		if err := resources.ForEach(func(key, value []byte) error {
			if batch.used == loadRecords {
				if err := l.send(l.read, batch); err != nil {
					return err
				}
				if batch, err = begin(); err != nil {
					return err
				}
			}
			batch.used++
			return batch.resources[batch.used-1].read(name, record.Hub, key, value)
		}); err != nil {
			return err
		}
	}
	if edges := bucket.Bucket(bucketEdges); edges != nil {
		if err := edges.ForEach(func(key, value []byte) error {
			value, err := unsealed(name, bucketEdges, key, value)
			if err == nil && !isUID(key) {
				err = fmt.Errorf("edges of %x: %w", key, errCorrupt)
			}
			batch.edges = append(batch.edges, pair{key: key, value: value})
			return err
		}); err != nil {
			return err
		}
	}
	batch.last = true
	return l.send(l.read, batch)
}

// read reads a stored resource.
func (r *loadedResource) read(cluster string, hub bool, key, value []byte) error {
	value, err := unsealed(cluster, bucketResources, key, value)
	if err != nil {
		return err
	}
	var ok bool
	if r.version, r.properties, r.leaves, ok = readRecord(value, r.properties[:0], r.leaves[:0]); !ok || !isUID(key) {
		return fmt.Errorf("resource %x: %w", key, errCorrupt)
	}
	r.uid = key
	r.class = search.ClassOf(cluster, hub, r.properties)
	r.hashes = appendHashes(r.hashes[:0], r.properties)
	return nil
}

// encodeAll makes terms of what is read, and closes what it passes that on with.
func (l *loader) encodeAll() error {
	defer close(l.encoded)
	for {
		batch, err := l.next(l.read)
		if batch == nil || err != nil {
			return err
		}
		l.encodeBatch(batch)
		if err := l.send(l.encoded, batch); err != nil {
			return err
		}
	}
}

func (l *loader) encodeBatch(batch *loadBatch) {
	l.terms.Lock()
	defer l.terms.Unlock()
	for i := range batch.resources[:batch.used] {
		r := &batch.resources[i]
		r.data = l.encode(append(r.data[:0], r.uid...), r.properties, r.hashes, &r.found)
	}
}

func (l *loader) flush() {
	l.terms.Lock()
	defer l.terms.Unlock()
	l.flushRows()
}

// storeAll makes rows of what is encoded.
func (l *loader) storeAll() error {
	for {
		batch, err := l.next(l.encoded)
		if batch == nil || err != nil {
			return err
		}
		if err := l.store(batch); err != nil {
			return fmt.Errorf("cluster %s: %w", batch.name, err)
		}
		l.unused <- batch
	}
}

func (l *loader) store(batch *loadBatch) error {
	c := l.cluster(batch.name, batch.record.Hub)
	for i := range batch.resources[:batch.used] {
		r := &batch.resources[i]
		number, known := l.findRow(c.id, r.uid)
		if !known {
			number = l.newRow(c, r.uid)
		}
		l.fill(number, l.rowSlab.keep(r.data), c, r.class, max(r.version, 1), &r.found)
	}
	if l.termRows.full() {
		l.flush()
	}
	counts := &edgeCounts{}
	for _, e := range batch.edges {
		if !l.loadEdges(c, e.key, e.value, counts) {
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
	return nil
}
