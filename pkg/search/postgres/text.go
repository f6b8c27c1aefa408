package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// separator separates texts in one column. Escaped texts do not contain it.
const separator = "\x01\x01"

var (
	escaper   = strings.NewReplacer("\x00", "\x01\x02\x02", "\x01", "\x01\x02\x03", "\x02", "\x01\x03\x02", "\x03", "\x01\x03\x03")
	unescaper = strings.NewReplacer("\x01\x02\x02", "\x00", "\x01\x02\x03", "\x01", "\x01\x03\x02", "\x02", "\x01\x03\x03", "\x03")
	likeText  = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
)

// escape returns a text that PostgreSQL can store: valid UTF-8 without zero bytes. Escaping preserves order and
// containment.
func escape(text string) string {
	plain := true
	for i := range len(text) {
		if text[i] <= 3 || text[i] >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		return text
	}
	return escaper.Replace(strings.ToValidUTF8(text, "\uFFFD"))
}

// unescape is the inverse of escape for valid UTF-8.
func unescape(text string) string {
	if strings.IndexByte(text, 1) < 0 {
		return text
	}
	return unescaper.Replace(text)
}

// likePattern returns the LIKE pattern for the parts of a comparison.
func likePattern(parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('%')
		}
		b.WriteString(likeText.Replace(escape(part)))
	}
	return b.String()
}

// plainText reports whether a text is neither a number nor a time, so that its order is that of its bytes.
func plainText(text string) bool {
	_, number := query.ParseNumber(text)
	return !number && !query.IsTime(text)
}

// orderedFloat returns an integer with the same order as the float. Both zeros are equal.
func orderedFloat(number float64) uint64 {
	if number == 0 {
		number = 0
	}
	bits := math.Float64bits(number)
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}

// microseconds returns a time in microseconds since 1970, and reports whether the result is exact.
func microseconds(at time.Time) (int64, bool) {
	return at.UnixMicro(), at.Nanosecond()%1000 == 0
}

// hasher computes 64-bit hashes of texts. The key is a secret of the database, so that reporters
// cannot produce collisions.
type hasher struct {
	secret []byte
}

// Purposes of hashes. The hashes of equal texts differ between purposes.
const (
	hashResource byte = iota + 1
	hashDocument
	hashProperty
	hashLeaf
	hashPairKey
	hashNumber
	hashToken
)

// sum hashes texts with their lengths, so that different lists never have the same input.
func (h hasher) sum(purpose byte, texts ...string) int64 {
	var room [512]byte
	buffer := append(append(room[:0], h.secret...), purpose)
	for _, text := range texts {
		buffer = binary.AppendUvarint(buffer, uint64(len(text)))
		buffer = append(buffer, text...)
	}
	digest := sha256.Sum256(buffer)
	return int64(binary.BigEndian.Uint64(digest[:8]))
}

// resource returns the rid of a resource.
func (h hasher) resource(cluster, uid string) int64 { return h.sum(hashResource, cluster, uid) }

// property returns the hash of a property.
func (h hasher) property(name string) int64 { return h.sum(hashProperty, name) }

// leaf returns the term of a leaf. A value and an element of a list have the same term.
func (h hasher) leaf(property string, pair bool, key, text string) int64 {
	if pair {
		return h.sum(hashLeaf, property, key, text)
	}
	return h.sum(hashLeaf, property, text)
}

// pairKey returns the term of a key of a map.
func (h hasher) pairKey(property, key string) int64 { return h.sum(hashPairKey, property, key) }

// number returns the term of a number.
func (h hasher) number(property string, number float64) int64 {
	var bits [8]byte
	binary.BigEndian.PutUint64(bits[:], orderedFloat(number))
	return h.sum(hashNumber, property, string(bits[:]))
}
