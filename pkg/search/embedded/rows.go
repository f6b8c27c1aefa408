package embedded

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// The data of a row begin with the part of its UID after the name of its cluster: one byte for the
// form, then the text. The terms follow as varints.
const (
	// uidUUID is a UUID in its usual form, as 16 bytes.
	uidUUID = iota
	// uidText is any other text, preceded by its length.
	uidText
	// uidCluster is the UID of the cluster itself.
	uidCluster
)

const (
	uuidLength = 36
)

var hashSeed = maphash.MakeSeed()

func hashText(text string) uint64 { return maphash.String(hashSeed, text) }

// hashWith combines a hash with a number.
func hashWith(hash uint64, number uint32) uint64 { return hash ^ (uint64(number)+1)*0x9e3779b97f4a7c15 }

func hashOf(text string, number uint32) uint64 { return hashWith(hashText(text), number) }

// appendUID appends a UID in the encoding of the data of rows. It returns false if the UID does not
// belong to the cluster.
func appendUID(dst []byte, cluster, uid string) ([]byte, bool) {
	if rest, found := strings.CutPrefix(uid, search.ClusterUIDPrefix); found && rest == cluster {
		return append(dst, uidCluster), true
	}
	if len(uid) <= len(cluster) || uid[:len(cluster)] != cluster || uid[len(cluster)] != '/' {
		return dst, false
	}
	rest := uid[len(cluster)+1:]
	if len(rest) == uuidLength {
		if encoded, ok := appendUUID(append(dst, uidUUID), rest); ok {
			return encoded, true
		}
	}
	dst = binary.AppendUvarint(append(dst, uidText), uint64(len(rest)))
	return append(dst, rest...), true
}

// appendUUID appends the bytes of a UUID in lower case. It returns false if the text is not such a
// UUID.
func appendUUID(dst []byte, text string) ([]byte, bool) {
	for i := 0; i < len(text); {
		switch i {
		case 8, 13, 18, 23:
			if text[i] != '-' {
				return dst, false
			}
			i++
			continue
		}
		high, low := nibble[text[i]], nibble[text[i+1]]
		if high|low > 15 {
			return dst, false
		}
		dst = append(dst, high<<4|low)
		i += 2
	}
	return dst, true
}

// nibble maps lower-case hexadecimal digits to their values, and other bytes to 255.
var nibble = func() (table [256]byte) {
	for i := range table {
		table[i] = 255
	}
	for i, digit := range "0123456789abcdef" {
		table[digit] = byte(i)
	}
	return table
}()

// uidEnd returns the end of the UID in the data of a row.
func uidEnd(data string) int {
	switch data[0] {
	case uidUUID:
		return 17
	case uidText:
		length, at := uvarint(data, 1)
		return at + int(length)
	default:
		return 1
	}
}

// appendUIDText is the reverse of appendUID. The data may continue after the UID.
func appendUIDText(dst []byte, cluster, data string) []byte {
	if data[0] == uidCluster {
		return append(append(dst, search.ClusterUIDPrefix...), cluster...)
	}
	dst = append(append(dst, cluster...), '/')
	if data[0] == uidText {
		length, at := uvarint(data, 1)
		return append(dst, data[at:at+int(length)]...)
	}
	var text [uuidLength]byte
	var id [16]byte
	copy(id[:], data[1:17])
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return append(dst, text[:]...)
}

// uvarint returns the varint at a position of a text, and the position after it.
func uvarint(data string, at int) (uint32, int) {
	b := data[at]
	if b < 0x80 {
		return uint32(b), at + 1
	}
	value, shift := uint32(b&0x7f), 7
	for at++; ; at++ {
		b = data[at]
		value |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return value, at + 1
		}
		shift += 7
	}
}

// clusterOf returns the cluster of a row.
func (s *state) clusterOf(r *row) *cluster { return s.clusters[s.classes.at(r.class).cluster] }

// uid returns the UID of a row.
func (s *state) uid(number uint32) string {
	r := s.rows.at(number)
	return string(appendUIDText(nil, s.clusterOf(r).name, r.data))
}

// compareUIDs orders rows by their UIDs, by bytes.
func (s *state) compareUIDs(a, b uint32) int {
	if a == b {
		return 0
	}
	ra, rb := s.rows.at(a), s.rows.at(b)
	ca, cb := s.clusterOf(ra), s.clusterOf(rb)
	if ra.data[0] == uidUUID && rb.data[0] == uidUUID {
		if ca == cb {
			return strings.Compare(ra.data[1:17], rb.data[1:17])
		}
		// The slash after the names determines the order if one name is a prefix of the other.
		short := min(len(ca.name), len(cb.name))
		if order := strings.Compare(ca.name[:short], cb.name[:short]); order != 0 {
			return order
		}
	}
	var bufferA, bufferB [128]byte
	return strings.Compare(string(appendUIDText(bufferA[:0], ca.name, ra.data)), string(appendUIDText(bufferB[:0], cb.name, rb.data)))
}

// findRow finds a row by its encoded UID.
func (s *state) findRow(clusterID uint32, encoded []byte) (uint32, bool) {
	return s.uids.find(hashUID(clusterID, encoded), func(number uint32) bool {
		r := s.rows.at(number)
		return s.classes.at(r.class).cluster == clusterID && len(r.data) >= len(encoded) &&
			r.data[:len(encoded)] == string(encoded)
	})
}

func hashUID(clusterID uint32, encoded []byte) uint64 {
	return hashWith(maphash.Bytes(hashSeed, encoded), clusterID)
}

func (s *state) hashRow(number uint32) uint64 {
	r := s.rows.at(number)
	return hashOf(r.data[:uidEnd(r.data)], s.classes.at(r.class).cluster)
}

// findUID finds a resource of any cluster by its UID.
func (s *state) findUID(uid string) (uint32, bool) {
	name, _, found := strings.Cut(uid, "/")
	if !found {
		if name, found = strings.CutPrefix(uid, search.ClusterUIDPrefix); !found {
			return 0, false
		}
	}
	id, known := s.clusterNames[name]
	if !known {
		return 0, false
	}
	encoded, ok := appendUID(nil, name, uid)
	if !ok {
		return 0, false
	}
	number, found := s.findRow(id, encoded)
	return number, found && s.rows.at(number).exists()
}
