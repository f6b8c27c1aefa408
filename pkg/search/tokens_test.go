package search

import (
	"bytes"
	"encoding/base64"
	"errors"
	"testing"
)

func tokensOf(t *testing.T, key byte) *Tokens {
	t.Helper()
	tokens, err := NewTokens(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestTokensAreSealed(t *testing.T) {
	tokens, position := tokensOf(t, 1), []byte(`{"position":"of an item"}`)
	token := tokens.Seal(position)
	if again := tokens.Seal(position); again == token {
		t.Errorf("tokens of one position = %s twice, want two tokens", token)
	}
	opened, err := tokensOf(t, 1).Open(token)
	if err != nil || !bytes.Equal(opened, position) {
		t.Errorf("Open() = %q, %v, want %q", opened, err, position)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || bytes.Contains(sealed, []byte("item")) {
		t.Errorf("decoded token = %q, %v, want one without the position", sealed, err)
	}
	for bit := range 8 * len(sealed) {
		sealed[bit/8] ^= 1 << (bit % 8)
		if _, err := tokens.Open(base64.RawURLEncoding.EncodeToString(sealed)); !errors.Is(err, ErrExpired) {
			t.Errorf("Open() with bit %d flipped = %v, want ErrExpired", bit, err)
		}
		sealed[bit/8] ^= 1 << (bit % 8)
	}
	for _, other := range []string{"", "x", token[:8], token[1:], token + "A", "*", base64.RawURLEncoding.EncodeToString(position)} {
		if _, err := tokens.Open(other); !errors.Is(err, ErrExpired) {
			t.Errorf("Open(%q) = %v, want ErrExpired", other, err)
		}
	}
	if _, err := tokensOf(t, 2).Open(token); !errors.Is(err, ErrExpired) {
		t.Errorf("Open() with another key = %v, want ErrExpired", err)
	}
}
