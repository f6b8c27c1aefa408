package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// readVersion reads what is true of everything. Found is false in a file without data.
func readVersion(tx *bbolt.Tx) (version uint64, clusters int, found bool, err error) {
	// A damaged element may say that it is no bucket, which reads as one that is not there, and
	// which nothing can be written to.
	meta, cursor := tx.Bucket(bucketMeta), tx.Cursor()
	for name, value := cursor.First(); name != nil; name, value = cursor.Next() {
		if value != nil || meta == nil {
			return 0, 0, false, fmt.Errorf("bucket %q: %w", name, errCorrupt)
		}
	}
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

// readRecord reads what appendRecord wrote. The texts are those of value.
func readRecord(value []byte, properties query.Properties, leaves []query.Leaf) (uint64, query.Properties, []query.Leaf, bool) {
	d := recordData{rest: bytesAsString(value)}
	version := d.uvarint()
	// Leaves may move until all of them are there.
	var room [64]int
	ends := room[:0]
	for len(d.rest) > 0 && !d.failed {
		p := query.Property{Name: d.text(), Type: query.Type(d.byte())}
		count, start := int(d.uvarint()), len(leaves)
		for i := 0; i < count && !d.failed; i++ {
			leaf := query.Leaf{Type: query.Type(d.byte())}
			if p.Type == query.Map {
				leaf.Key = d.text()
			}
			leaf.Text = d.text()
			if d.failed = d.failed || leaf.Type > query.JSON; !d.failed {
				leaves = append(leaves, leaf)
			}
		}
		d.failed = d.failed || p.Type > query.List || p.Type < query.Map && len(leaves)-start != 1
		properties, ends = append(properties, p), append(ends, len(leaves))
	}
	start := 0
	for i, end := range ends {
		properties[i].Leaves = leaves[start:end:end]
		start = end
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
