package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// readVersion reads what is true of everything. Found is false in a file without data.
func readVersion(tx *bbolt.Tx) (version uint64, clusters int, found bool, err error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return 0, 0, false, nil
	}
	switch f := meta.Get(keyFormat); {
	case len(f) != 1 || f[0] == 0:
		return 0, 0, false, fmt.Errorf("format %x: %w", f, errCorrupt)
	case f[0] < format:
		return 0, 0, false, fmt.Errorf("format %d %w any more; clusters report again", f[0], errFormat)
	case f[0] > format:
		return 0, 0, false, fmt.Errorf("format %d %w yet; clusters report again", f[0], errFormat)
	}
	value, err := unsealed("", bucketMeta, keyVersion, meta.Get(keyVersion))
	if err != nil {
		return 0, 0, false, err
	}
	if len(value) != 16 {
		return 0, 0, false, errCorrupt
	}
	return binary.BigEndian.Uint64(value), int(binary.BigEndian.Uint64(value[8:])), true, nil
}

// errCorrupt is the error for data that cannot have been written by this engine.
var errCorrupt = errors.New("the data are corrupt")

// load reads everything into a transaction.
func (t *transaction) load(tx *bbolt.Tx) error {
	version, present, found, err := readVersion(tx)
	if err != nil || !found {
		return err
	}
	t.version = max(version, 1)
	if clusters := tx.Bucket(bucketClusters); clusters != nil {
		if err := clusters.ForEachBucket(func(name []byte) error {
			if err := t.loadCluster(string(name), clusters.Bucket(name)); err != nil {
				return fmt.Errorf("cluster %s: %w", name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if len(t.clusters) != present {
		return fmt.Errorf("%d clusters of %d: %w", len(t.clusters), present, errCorrupt)
	}
	return nil
}

func (t *transaction) loadCluster(name string, bucket *bbolt.Bucket) error {
	value, err := unsealed(name, bucketClusters, keyState, bucket.Get(keyState))
	if err != nil {
		return err
	}
	var record clusterRecord
	if err := json.Unmarshal(value, &record); err != nil {
		return fmt.Errorf("state: %w: %w", errCorrupt, err)
	}
	c := t.cluster(name, record.Hub)
	c.reported, c.incomplete = record.Reported, record.Incomplete
	if err := t.loadResources(c, bucket.Bucket(bucketResources)); err != nil {
		return err
	}
	if edges := bucket.Bucket(bucketEdges); edges != nil {
		counts := &edgeCounts{}
		if err := edges.ForEach(func(key, value []byte) error {
			value, err := unsealed(name, bucketEdges, key, value)
			if err == nil && (!isUID(key) || !t.loadEdges(c, key, value, counts)) {
				err = fmt.Errorf("edges of %x: %w", key, errCorrupt)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if resources := c.rows.count(); resources != record.Resources || c.edges != record.Edges {
		return fmt.Errorf("%d resources of %d and %d edges of %d: %w", resources, record.Resources, c.edges, record.Edges, errCorrupt)
	}
	return nil
}

func (t *transaction) loadResources(c *cluster, bucket *bbolt.Bucket) error {
	if bucket == nil {
		return nil
	}
	var properties query.Properties
	var leaves []query.Leaf
	return bucket.ForEach(func(key, value []byte) error {
		value, err := unsealed(c.name, bucketResources, key, value)
		if err != nil {
			return err
		}
		var version uint64
		var ok bool
		if version, properties, leaves, ok = readRecord(value, properties[:0], leaves[:0]); !ok || !isUID(key) {
			return fmt.Errorf("resource %x: %w", key, errCorrupt)
		}
		t.loadRow(c, key, version, properties)
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
