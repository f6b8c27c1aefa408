package embedded

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// token is where the next items begin. Without an order it is a row; with an order it is what
// the last item is ordered by.
type token struct {
	row    uint32
	keys   []sortKey
	uid    string
	offset int
}

const (
	tokenRow = iota
	tokenKeys
)

// tokenKeySize is the size of the key of tokens, in bytes.
const tokenKeySize = 32

// tokens makes texts of tokens and reads them. They are encrypted, since the numbers of rows tell how
// many rows are between them that the caller may not find, and authenticated. The key is known to this
// process only, as rows are.
type tokens struct{ sealer cipher.AEAD }

func newTokens() (*tokens, error) {
	var key [tokenKeySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("key of continue tokens: %w", err)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	return &tokens{sealer: sealer}, nil
}

// encode gives a token as text. All tokens without an order are of the same length.
func (k *tokens) encode(t *token, by []search.Order) string {
	var data []byte
	if len(by) == 0 {
		data = binary.BigEndian.AppendUint32([]byte{tokenRow}, t.row)
	} else {
		data = binary.BigEndian.AppendUint64([]byte{tokenKeys}, hashOrders(by))
		data = binary.AppendUvarint(data, uint64(t.offset))
		data = appendText(data, t.uid)
		for i := range t.keys {
			if t.keys[i].missing {
				data = append(data, 0)
				continue
			}
			data = appendText(append(data, 1), t.keys[i].text)
		}
	}
	return base64.RawURLEncoding.EncodeToString(k.sealer.Seal(nil, nil, data, nil))
}

// parse reads a token for the same order. It returns search.ErrExpired for one of another process, of
// another order, or not made by encode.
func (k *tokens) parse(text string, by []search.Order) (token, error) {
	encrypted, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return token{}, expired(text)
	}
	data, err := k.sealer.Open(nil, nil, encrypted, nil)
	if err != nil {
		return token{}, expired(text)
	}
	d := tokenData{rest: data}
	kind := d.byte()
	var t token
	switch {
	case kind == tokenRow && len(by) == 0:
		t.row = d.uint32()
	case kind == tokenKeys && len(by) > 0 && d.uint64() == hashOrders(by):
		t.offset = int(min(d.uvarint(), math.MaxInt32))
		t.uid = d.text()
		for range by {
			if t.uid == "" {
				break
			}
			if d.byte() == 0 {
				t.keys = append(t.keys, sortKey{missing: true})
			} else {
				t.keys = append(t.keys, newSortKey(d.text()))
			}
		}
	default:
		return token{}, expired(text)
	}
	if d.failed || len(d.rest) > 0 {
		return token{}, expired(text)
	}
	return t, nil
}

func hashOrders(by []search.Order) uint64 {
	h := fnv.New64a()
	var data []byte
	for _, order := range by {
		data = appendText(data, order.Property)
		if order.Descending {
			data = append(data, 1)
		} else {
			data = append(data, 0)
		}
	}
	h.Write(data)
	return h.Sum64()
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// tokenData reads what encode wrote; once something is missing all is zero.
type tokenData struct {
	rest   []byte
	failed bool
}

func (d *tokenData) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.failed, d.rest = true, nil
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *tokenData) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *tokenData) uint32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *tokenData) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *tokenData) uvarint() uint64 {
	value, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.take(-1)
		return 0
	}
	d.take(n)
	return value
}

func (d *tokenData) text() string {
	length := d.uvarint()
	if length > uint64(len(d.rest)) {
		d.take(-1)
		return ""
	}
	return string(d.take(int(length)))
}
