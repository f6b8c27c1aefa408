package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// token is the position at which the next items begin. For requests without an order, it is a row.
// For requests with an order, it consists of the sort keys and the UID of the last item.
type token struct {
	row    uint32
	keys   []sortKey
	uid    string
	offset int
}

// within returns the position among the rows whose first key is equal to a key, or nil if no row before the page has this key.
func (t *token) within(key *sortKey) *token {
	if t == nil || key.compare(&t.keys[0], false) != 0 {
		return nil
	}
	return &token{keys: t.keys[1:], uid: t.uid}
}

const (
	tokenRow = iota
	tokenKeys
)

// tokenKeySize is the size of the key of tokens, in bytes.
const tokenKeySize = 32

// tokens encodes and decodes tokens. The numbers of rows would reveal the number of rows between them that are not in the
// scope of the caller. The key is valid only in this process, like the numbers of rows.
type tokens struct{ *search.Tokens }

func newTokens() (*tokens, error) {
	var key [tokenKeySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("key of continue tokens: %w", err)
	}
	sealed, err := search.NewTokens(key[:])
	return &tokens{sealed}, err
}

// encode returns a token as text. All tokens without an order have the same length.
func (k *tokens) encode(t *token, by []search.Order) string {
	var data []byte
	if len(by) == 0 {
		data = binary.BigEndian.AppendUint32([]byte{tokenRow}, t.row)
	} else {
		data = appendText([]byte{tokenKeys}, search.OrderName(by))
		data = binary.AppendUvarint(data, uint64(t.offset))
		data = appendText(data, t.uid)
		for i := range t.keys {
			if t.keys[i].missing {
				data = append(data, 0)
				continue
			}
			data = appendText(append(data, 1), t.keys[i].Text)
		}
	}
	return k.Seal(data)
}

// parse decodes a token for the same order. It returns search.ErrExpired for a token of another
// process or order, and for any other text.
func (k *tokens) parse(text string, by []search.Order) (token, error) {
	data, err := k.Open(text)
	if err != nil {
		return token{}, expired(text)
	}
	d := decoder{rest: data}
	kind := d.byte()
	var t token
	switch {
	case kind == tokenRow && len(by) == 0:
		t.row = d.uint32()
	case kind == tokenKeys && len(by) > 0 && d.text() == search.OrderName(by):
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
