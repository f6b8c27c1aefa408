package search

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Tokens seals the places in continue tokens. They are authenticated, and encrypted, because a place may depend on
// resources that are not in the scope of the caller.
type Tokens struct {
	sealer   cipher.AEAD
	rowBytes int
}

// Place is the place of a page.
type Place struct {
	// Order is the OrderName of the request.
	Order string `json:"o,omitempty"`
	// Row identifies an item without an order. It has the same length for all items.
	Row []byte `json:"r,omitempty"`
	// Keys and UID identify the last item before the page in an order: the texts of its properties, or nil if they are
	// missing.
	Keys []*string `json:"k,omitempty"`
	UID  string    `json:"u,omitempty"`
}

// NewTokens returns Tokens for a key of 32 bytes. rowBytes is the length of Place.Row.
func NewTokens(key []byte, rowBytes int) (*Tokens, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	return &Tokens{sealer: sealer, rowBytes: rowBytes}, nil
}

// Seal returns the token of a place in an order.
func (t *Tokens) Seal(place Place, orders []Order) string {
	place.Order = OrderName(orders)
	text, _ := json.Marshal(place) // Texts can always be encoded.
	return base64.RawURLEncoding.EncodeToString(t.sealer.Seal(nil, nil, text, nil))
}

// Open returns the place of a token. It returns an error that wraps ErrExpired if the token is not one of the same key
// and order.
func (t *Tokens) Open(token string, orders []Order) (*Place, error) {
	place := &Place{}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err == nil {
		sealed, err = t.sealer.Open(nil, nil, sealed, nil)
	}
	if err == nil {
		err = json.Unmarshal(sealed, place)
	}
	rowBytes := t.rowBytes
	if len(orders) > 0 {
		rowBytes = 0
	}
	if err != nil || place.Order != OrderName(orders) || len(place.Keys) != len(orders) || len(place.Row) != rowBytes {
		return nil, fmt.Errorf("the continue token does not belong to this search: %w", ErrExpired)
	}
	return place, nil
}
