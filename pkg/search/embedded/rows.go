package embedded

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// The data of a row begin with the part of its UID after the name of its cluster: its length plus one, then the text. The
// length of the UID of the cluster itself is 0. The terms follow as varints.

var hashSeed = maphash.MakeSeed()

func hashText(text string) uint64 { return maphash.String(hashSeed, text) }

// hashWith combines a hash with a number.
func hashWith(hash uint64, number uint32) uint64 { return hash ^ (uint64(number)+1)*0x9e3779b97f4a7c15 }

func hashOf(text string, number uint32) uint64 { return hashWith(hashText(text), number) }

// appendUID appends a UID in the encoding of the data of rows. It returns false if the UID does not
// belong to the cluster.
func appendUID(dst []byte, cluster, uid string) ([]byte, bool) {
	if rest, found := strings.CutPrefix(uid, search.ClusterUIDPrefix); found && rest == cluster {
		return append(dst, 0), true
	}
	rest, found := strings.CutPrefix(uid, cluster)
	if !found || len(rest) < 2 || rest[0] != '/' {
		return dst, false
	}
	rest = rest[1:]
	return append(binary.AppendUvarint(dst, uint64(len(rest))+1), rest...), true
}

// uidEnd returns the end of the UID in the data of a row.
func uidEnd(data string) int {
	length, at := uvarint(data, 0)
	return at + max(0, int(length)-1)
}

// uidText returns the part of a UID after the name of the cluster, in the data of a row that is not the cluster itself.
func uidText(data string) string {
	length, at := uvarint(data, 0)
	return data[at : at+int(length)-1]
}

// appendUIDText is the reverse of appendUID. The data may continue after the UID.
func appendUIDText(dst []byte, cluster, data string) []byte {
	if data[0] == 0 {
		return append(append(dst, search.ClusterUIDPrefix...), cluster...)
	}
	return append(append(append(dst, cluster...), '/'), uidText(data)...)
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

// termsOf returns the terms of the data of a row, with their numbers.
func (d *dictionary) termsOf(data string) iter.Seq2[uint32, *term] {
	return func(yield func(uint32, *term) bool) {
		for at := uidEnd(data); at < len(data); {
			var number uint32
			if number, at = uvarint(data, at); !yield(number, d.terms.at(number)) {
				return
			}
		}
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
	ra, rb := s.rows.at(a), s.rows.at(b)
	ca, cb := s.clusterOf(ra), s.clusterOf(rb)
	if ca == cb && ra.data[0] > 0 && rb.data[0] > 0 {
		return strings.Compare(uidText(ra.data), uidText(rb.data))
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
