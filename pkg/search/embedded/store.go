package embedded

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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
	format = 1
	// lockTimeout is how long opening waits for another process to let go of the file.
	lockTimeout = 2 * time.Second
	// fill is how full pages are made that are written in order.
	fill = 0.9
)

// errFormat is the error for data of a format that this engine does not read.
var errFormat = errors.New("the format of the data is not known")

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

// clusterRecord is the state of a cluster as it is stored.
type clusterRecord struct {
	Hub        bool      `json:"hub,omitempty"`
	Reported   time.Time `json:"reported"`
	Incomplete bool      `json:"incomplete,omitempty"`
}

// write writes what a transaction has changed.
func (t *transaction) write(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error { return t.writeTo(tx, t.stored.clusters) })
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
	if err := writeVersion(tx, t.version); err != nil {
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

func writeVersion(tx *bbolt.Tx, version uint64) error {
	meta, err := tx.CreateBucketIfNotExists(bucketMeta)
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	if err := meta.Put(keyFormat, []byte{format}); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	if err := meta.Put(keyVersion, binary.BigEndian.AppendUint64(nil, version)); err != nil {
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
	state, err := json.Marshal(clusterRecord{Hub: c.hub, Reported: c.reported, Incomplete: c.incomplete})
	if err != nil {
		return err
	}
	if err := bucket.Put(keyState, state); err != nil {
		return err
	}
	if err := t.writeResources(bucket, changes); err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if err := t.writeEdges(bucket, changes); err != nil {
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

func (t *transaction) writeResources(bucket *bbolt.Bucket, changes *storedCluster) error {
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
		f := s.fields.get(t.info.field())
		kind := f.kind
		if kind < query.Map {
			kind = t.info.leaf()
		}
		dst = append(appendText(dst, s.properties.get(f.property).name), byte(kind))
		if t.info.empty() {
			dst = append(dst, 0)
			at = next
			continue
		}
		count, end := 1, next
		for end < len(r.data) {
			other, after := uvarint(r.data, end)
			if s.fields.get(s.terms.at(other).info.field()).property != f.property {
				break
			}
			count, end = count+1, after
		}
		dst = binary.AppendUvarint(dst, uint64(count))
		for at < end {
			number, at = uvarint(r.data, at)
			t := s.terms.at(number)
			dst = append(dst, byte(t.info.leaf()))
			if kind == query.Map {
				dst = appendText(dst, s.fields.get(t.info.field()).key)
			}
			dst = appendText(dst, t.text)
		}
	}
	return dst
}

func (t *transaction) writeEdges(bucket *bbolt.Bucket, changes *storedCluster) error {
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
		pairs = append(pairs, pair{key: []byte(r.data[:uidEnd(r.data)]), value: value})
	}
	return put(bucket, bucketEdges, pairs)
}

// readVersion reads what is true of everything. Found is false in a file without data.
func readVersion(tx *bbolt.Tx) (version uint64, found bool, err error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return 0, false, nil
	}
	if f := meta.Get(keyFormat); len(f) != 1 || f[0] != format {
		return 0, false, fmt.Errorf("format %v: %w", f, errFormat)
	}
	text := meta.Get(keyVersion)
	if len(text) != 8 {
		return 0, false, errCorrupt
	}
	return binary.BigEndian.Uint64(text), true, nil
}

// errCorrupt is the error for data that cannot have been written by this engine.
var errCorrupt = errors.New("the data are corrupt")

// load reads everything into a transaction.
func (t *transaction) load(tx *bbolt.Tx) error {
	version, found, err := readVersion(tx)
	if err != nil || !found {
		return err
	}
	t.version = max(version, 1)
	clusters := tx.Bucket(bucketClusters)
	if clusters == nil {
		return nil
	}
	return clusters.ForEachBucket(func(name []byte) error {
		if err := t.loadCluster(string(name), clusters.Bucket(name)); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		return nil
	})
}

func (t *transaction) loadCluster(name string, bucket *bbolt.Bucket) error {
	var record clusterRecord
	if err := json.Unmarshal(bucket.Get(keyState), &record); err != nil {
		return fmt.Errorf("state: %w: %w", errCorrupt, err)
	}
	c := t.cluster(name, record.Hub)
	c.reported, c.incomplete = record.Reported, record.Incomplete
	if resources := bucket.Bucket(bucketResources); resources != nil {
		var properties query.Properties
		var leaves []query.Leaf
		if err := resources.ForEach(func(key, value []byte) error {
			var version uint64
			var ok bool
			if version, properties, leaves, ok = readRecord(value, properties[:0], leaves[:0]); !ok || !isUID(key) {
				return fmt.Errorf("resource %x: %w", key, errCorrupt)
			}
			t.loadRow(c, key, version, properties)
			return nil
		}); err != nil {
			return err
		}
	}
	edges := bucket.Bucket(bucketEdges)
	if edges == nil {
		return nil
	}
	counts := &edgeCounts{}
	return edges.ForEach(func(key, value []byte) error {
		if !isUID(key) || !t.loadEdges(c, key, value, counts) {
			return fmt.Errorf("edges of %x: %w", key, errCorrupt)
		}
		return nil
	})
}

// isUID tells whether a key is a UID as the data of a row begin with.
func isUID(key []byte) bool { return uidLength(key) == len(key) }

// uidLength is the length of the UID that data begin with; -1 if they do not.
func uidLength(data []byte) int {
	if len(data) == 0 {
		return -1
	}
	length := -1
	switch data[0] {
	case uidUUID:
		length = 17
	case uidCluster:
		length = 1
	case uidText:
		if n, size := binary.Uvarint(data[1:]); size > 0 && n <= uint64(len(data)) {
			length = 1 + size + int(n)
		}
	}
	if length > len(data) {
		return -1
	}
	return length
}

// loadRow stores a resource as it was.
func (t *transaction) loadRow(c *cluster, uid []byte, version uint64, properties query.Properties) {
	data := t.encode(append(t.scratch.data[:0], uid...), properties, &t.scratch.now)
	t.scratch.data = data
	number, known := t.findRow(c.id, uid)
	if !known {
		number = t.newRow(c, uid)
	}
	t.fill(number, string(data), c, search.ClassOf(c.name, c.hub, properties), max(version, 1))
}

// readRecord reads what appendRecord wrote. The texts are those of value.
func readRecord(value []byte, properties query.Properties, leaves []query.Leaf) (uint64, query.Properties, []query.Leaf, bool) {
	d := recordData{rest: bytesAsString(value)}
	version := d.uvarint()
	// Slices of leaves must not move while properties have parts of them.
	if most := len(value)/2 + 1; cap(leaves) < most {
		leaves = make([]query.Leaf, 0, most)
	}
	for len(d.rest) > 0 && !d.failed {
		p := query.Property{Name: d.text(), Type: query.Type(d.byte())}
		count := int(d.uvarint())
		start := len(leaves)
		for i := 0; i < count && !d.failed; i++ {
			leaf := query.Leaf{Type: query.Type(d.byte())}
			if p.Type == query.Map {
				leaf.Key = d.text()
			}
			leaf.Text = d.text()
			d.failed = d.failed || leaf.Type > query.JSON || len(leaves) == cap(leaves)
			if !d.failed {
				leaves = append(leaves, leaf)
			}
		}
		p.Leaves = leaves[start:len(leaves):len(leaves)]
		d.failed = d.failed || p.Type > query.List || p.Type < query.Map && len(p.Leaves) != 1
		properties = append(properties, p)
	}
	return version, properties, leaves, !d.failed
}

// loadEdges stores the edges of a source.
func (t *transaction) loadEdges(c *cluster, source, value []byte, counts *edgeCounts) bool {
	d := recordData{rest: bytesAsString(value)}
	for len(d.rest) > 0 {
		relation := d.text()
		length := uidLength(value[len(value)-len(d.rest):])
		if d.failed || length < 0 {
			return false
		}
		dest := []byte(d.take(length))
		from, known := t.findRow(c.id, source)
		if !known {
			from = t.newRow(c, source)
		}
		to, known := t.findRow(c.id, dest)
		if !known {
			to = t.newRow(c, dest)
		}
		t.connect(c, from, to, t.relation(relation), counts)
	}
	return true
}
