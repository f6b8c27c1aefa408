package search

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
)

// Tokens seals the positions in continue tokens. They are authenticated, and encrypted, because a position may depend on
// resources that are not in the scope of the caller.
type Tokens struct{ sealer cipher.AEAD }

// NewTokens returns Tokens for a key of 32 bytes.
func NewTokens(key []byte) (*Tokens, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("continue tokens: %w", err)
	}
	return &Tokens{sealer: sealer}, nil
}

// Seal returns the token of a position.
func (t *Tokens) Seal(position []byte) string {
	return base64.RawURLEncoding.EncodeToString(t.sealer.Seal(nil, nil, position, nil))
}

// Open returns the position of a token, or ErrExpired if the token was not sealed with the same key.
func (t *Tokens) Open(token string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return nil, ErrExpired
	}
	position, err := t.sealer.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, ErrExpired
	}
	return position, nil
}
