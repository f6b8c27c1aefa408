package embedded

import (
	"encoding/binary"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// decoder reads data that appendText and package binary have written. Its results share the memory
// of the data. If data are missing, failed becomes true, and all further values are zero.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.failed, d.rest = true, nil
		return nil
	}
	taken := d.rest[:n:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	value, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return value
}

func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }

func (d *decoder) text() string { return bytesAsString(d.bytes()) }

// appendRecord appends the version and the properties of a resource.
func appendRecord(dst []byte, version uint64, properties query.Properties) []byte {
	dst = binary.AppendUvarint(dst, version)
	for i := range properties {
		p := &properties[i]
		dst = append(appendText(dst, p.Name), byte(p.Type))
		dst = binary.AppendUvarint(dst, uint64(len(p.Leaves)))
		for _, leaf := range p.Leaves {
			dst = append(dst, byte(leaf.Type))
			if p.Type == query.Map {
				dst = appendText(dst, leaf.Key)
			}
			dst = appendText(dst, leaf.Text)
		}
	}
	return dst
}

// readRecord reads data that appendRecord has written. It returns false if the data are not valid.
func readRecord(value []byte, properties query.Properties, leaves []query.Leaf) (uint64, query.Properties, []query.Leaf, bool) {
	d := decoder{rest: value}
	version := d.uvarint()
	// Leaves may be moved until all of them are read.
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

// isUID reports whether a key is a UID in the encoding of the data of rows.
func isUID(key []byte) bool { return uidLength(key) == len(key) }

// uidLength returns the length of the UID at the start of data, or -1 if data do not start with a
// UID.
func uidLength(data []byte) int {
	length, size := binary.Uvarint(data)
	if size <= 0 || length > uint64(len(data)) {
		return -1
	}
	end := size + max(0, int(length)-1)
	if end > len(data) {
		return -1
	}
	return end
}
