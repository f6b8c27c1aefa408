package embedded

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// The file has a bucket of what is true of everything, and one for each cluster with
// its state, its resources and its edges. Resources have the UID, as the data of a
// row have it, for a key, and their version and properties for a value; edges have the UID of
// their source for a key, and the relations and UIDs of their destinations for a value.
var (
	bucketMeta      = []byte("meta")
	bucketClusters  = []byte("clusters")
	bucketResources = []byte("resources")
	bucketEdges     = []byte("edges")
	keyFormat       = []byte("format")
	keyVersion      = []byte("version")
	keyState        = []byte("state")
)

const (
	// format changes when data written before cannot be read any more.
	format = 2
	// sumSize is the size of the checksum that each value ends with.
	sumSize = 4
	// lockTimeout is how long opening waits for another process to let go of the file.
	lockTimeout = 2 * time.Second
	// fill is how full pages are made that are written in order.
	fill = 0.9
)

// errFormat is the error for data of a format that this engine does not read.
var errFormat = errors.New("is not read")

// openStore opens the file. Transactions do not wait for the disk: what survives a crash of
// the process is in memory of the kernel, and sync does the rest.
func openStore(path string) (*bbolt.DB, error) {
	return openFile(path, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
}

func openFile(path string, options *bbolt.Options) (*bbolt.DB, error) {
	var file *os.File
	options.Timeout = lockTimeout
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	db, err := bbolt.Open(path, 0o600, options)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", path, search.ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Another process may have put a new file there while this one waited for the lock.
	opened, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(opened, there) {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, search.ErrInUse), db.Close())
	}
	return db, nil
}

// clusterRecord is the state of a cluster as it is stored. Its counts tell whether all else is there.
type clusterRecord struct {
	Hub        bool      `json:"hub,omitempty"`
	Reported   time.Time `json:"reported"`
	Incomplete bool      `json:"incomplete,omitempty"`
	Resources  int       `json:"resources"`
	Edges      int       `json:"edges"`
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// sumOf is the checksum of a value, and of where it belongs.
func sumOf(cluster string, bucket, key, value []byte) uint32 {
	sum := crc32.Update(0, sumTable, []byte(cluster))
	sum = crc32.Update(sum, sumTable, bucket)
	sum = crc32.Update(sum, sumTable, key)
	return crc32.Update(sum, sumTable, value)
}

// sealed appends its checksum to a value.
func sealed(cluster string, bucket, key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sumOf(cluster, bucket, key, value))
}

// unsealed is a value without its checksum.
func unsealed(cluster string, bucket, key, value []byte) ([]byte, error) {
	end := len(value) - sumSize
	if end < 0 || binary.BigEndian.Uint32(value[end:]) != sumOf(cluster, bucket, key, value[:end]) {
		return nil, fmt.Errorf("%s of %x: %w", bucket, key, errCorrupt)
	}
	return value[:end:end], nil
}

// write writes what a transaction has changed.
func (t *transaction) write(db *bbolt.DB) error {
	// Damage to the file that shows only now must not end the process, which can still search.
	return guarded(func() error { return db.Update(func(tx *bbolt.Tx) error { return t.writeTo(tx, t.stored.clusters) }) })
}

// writeAll writes what a transaction has changed, cluster by cluster, to a file that nobody uses yet.
func (t *transaction) writeAll(db *bbolt.DB) error {
	if err := db.Update(func(tx *bbolt.Tx) error { return t.writeTo(tx, nil) }); err != nil {
		return err
	}
	for id, changes := range t.stored.clusters {
		if err := db.Update(func(tx *bbolt.Tx) error {
			return t.writeTo(tx, map[uint32]*storedCluster{id: changes})
		}); err != nil {
			return err
		}
	}
	return db.Sync()
}

func (t *transaction) writeTo(tx *bbolt.Tx, changed map[uint32]*storedCluster) error {
	if err := t.writeVersion(tx); err != nil {
		return err
	}
	clusters, err := tx.CreateBucketIfNotExists(bucketClusters)
	if err != nil {
		return fmt.Errorf("clusters: %w", err)
	}
	for id, changes := range changed {
		c := t.clusters[id]
		if err := t.writeCluster(clusters, c, changes); err != nil {
			return fmt.Errorf("cluster %s: %w", c.name, err)
		}
	}
	return nil
}

// writeVersion writes what is true of everything: the version and how many clusters there are.
func (t *transaction) writeVersion(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucketIfNotExists(bucketMeta)
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	if err := meta.Put(keyFormat, []byte{format}); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	present := 0
	for _, c := range t.clusters {
		if c.present {
			present++
		}
	}
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.version), uint64(present))
	if err := meta.Put(keyVersion, sealed("", bucketMeta, keyVersion, value)); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	return nil
}

func (t *transaction) writeCluster(clusters *bbolt.Bucket, c *cluster, changes *storedCluster) error {
	name := []byte(c.name)
	if changes.removed || !c.present {
		if err := clusters.DeleteBucket(name); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
	}
	if !c.present {
		return nil
	}
	bucket, err := clusters.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	state, err := json.Marshal(clusterRecord{
		Hub: c.hub, Reported: c.reported, Incomplete: c.incomplete, Resources: c.rows.count(), Edges: c.edges,
	})
	if err != nil {
		return err
	}
	if err := bucket.Put(keyState, sealed(c.name, bucketClusters, keyState, state)); err != nil {
		return err
	}
	if err := t.writeResources(bucket, c, changes); err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if err := t.writeEdges(bucket, c, changes); err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	return nil
}

// pair is a key with its value; nil if it is to be deleted.
type pair struct{ key, value []byte }

// put writes pairs in the order of keys, of which the last of each counts.
func put(parent *bbolt.Bucket, name []byte, pairs []pair) error {
	if len(pairs) == 0 {
		return nil
	}
	bucket, err := parent.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	bucket.FillPercent = fill
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	for i, p := range pairs {
		if i+1 < len(pairs) && bytes.Equal(p.key, pairs[i+1].key) {
			continue
		}
		if p.value == nil {
			err = bucket.Delete(p.key)
		} else {
			err = bucket.Put(p.key, p.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) writeResources(bucket *bbolt.Bucket, c *cluster, changes *storedCluster) error {
	pairs := make([]pair, 0, len(changes.gone)+len(changes.rows))
	for _, uid := range changes.gone {
		pairs = append(pairs, pair{key: []byte(uid)})
	}
	var buffer []byte
	for _, number := range changes.rows {
		r := t.rows.at(number)
		if !r.exists() {
			continue
		}
		start := len(buffer)
		end := uidEnd(r.data)
		buffer = append(buffer, r.data[:end]...)
		middle := len(buffer)
		buffer = t.appendRecord(buffer, r)
		buffer = binary.BigEndian.AppendUint32(buffer, sumOf(c.name, bucketResources, buffer[start:middle], buffer[middle:]))
		pairs = append(pairs, pair{key: buffer[start:middle:middle], value: buffer[middle:len(buffer):len(buffer)]})
		if cap(buffer)-len(buffer) < 4<<10 {
			buffer = make([]byte, 0, 64<<10)
		}
	}
	return put(bucket, bucketResources, pairs)
}

// appendRecord appends the version and the properties of a row.
func (s *state) appendRecord(dst []byte, r *row) []byte {
	dst = binary.AppendUvarint(dst, r.version)
	for at := uidEnd(r.data); at < len(r.data); {
		// The terms of one property follow each other.
		var number uint32
		number, next := uvarint(r.data, at)
		t := s.terms.at(number)
		f := s.fields.get(t.info().field())
		kind := f.kind
		if kind < query.Map {
			kind = t.info().leaf()
		}
		dst = append(appendText(dst, s.properties.get(f.property).name), byte(kind))
		if t.info().empty() {
			dst = append(dst, 0)
			at = next
			continue
		}
		count, end := 1, next
		for end < len(r.data) {
			other, after := uvarint(r.data, end)
			if s.fields.get(s.terms.at(other).info().field()).property != f.property {
				break
			}
			count, end = count+1, after
		}
		dst = binary.AppendUvarint(dst, uint64(count))
		for at < end {
			number, at = uvarint(r.data, at)
			t := s.terms.at(number)
			dst = append(dst, byte(t.info().leaf()))
			if kind == query.Map {
				dst = appendText(dst, s.fields.get(t.info().field()).key)
			}
			dst = appendText(dst, s.textOf(t))
		}
	}
	return dst
}

func (t *transaction) writeEdges(bucket *bbolt.Bucket, c *cluster, changes *storedCluster) error {
	pairs := make([]pair, 0, len(changes.unrelated)+len(changes.sources))
	for _, uid := range changes.unrelated {
		pairs = append(pairs, pair{key: []byte(uid)})
	}
	slices.Sort(changes.sources)
	for _, number := range slices.Compact(changes.sources) {
		r := t.rows.at(number)
		if r.data == "" {
			continue
		}
		value := []byte(nil)
		for _, e := range t.adjacency.get(number) {
			if e.in() {
				continue
			}
			other := t.rows.at(e.other()).data
			value = appendText(value, t.relations[e.relation()])
			value = append(value, other[:uidEnd(other)]...)
		}
		key := []byte(r.data[:uidEnd(r.data)])
		if value != nil {
			value = sealed(c.name, bucketEdges, key, value)
		}
		pairs = append(pairs, pair{key: key, value: value})
	}
	return put(bucket, bucketEdges, pairs)
}
