package search

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

const testRowBytes = 4

func tokensOf(t testing.TB, key byte) *Tokens {
	t.Helper()
	tokens, err := NewTokens(bytes.Repeat([]byte{key}, 32), testRowBytes)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

var byName = []Order{{Property: "name"}, {Property: "created", Descending: true}}

func TestTokensAreSealed(t *testing.T) {
	name := "of an item"
	tokens, place := tokensOf(t, 1), Place{Order: OrderName(byName), Keys: []*string{&name, nil}, UID: "c1/item"}
	token := tokens.Seal(place, byName)
	if again := tokens.Seal(place, byName); again == token {
		t.Errorf("tokens of one place = %s twice, want two tokens", token)
	}
	opened, err := tokensOf(t, 1).Open(token, byName)
	if err != nil || !reflect.DeepEqual(opened, &place) {
		t.Errorf("Open() = %+v, %v, want %+v", opened, err, place)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || bytes.Contains(sealed, []byte("item")) {
		t.Errorf("decoded token = %q, %v, want one without the place", sealed, err)
	}
	for bit := range 8 * len(sealed) {
		sealed[bit/8] ^= 1 << (bit % 8)
		if _, err := tokens.Open(base64.RawURLEncoding.EncodeToString(sealed), byName); !errors.Is(err, ErrExpired) {
			t.Errorf("Open() with bit %d flipped = %v, want ErrExpired", bit, err)
		}
		sealed[bit/8] ^= 1 << (bit % 8)
	}
	plain, err := json.Marshal(place)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", "x", token[:8], token[1:], token + "A", "*", base64.RawURLEncoding.EncodeToString(plain)} {
		if _, err := tokens.Open(other, byName); !errors.Is(err, ErrExpired) {
			t.Errorf("Open(%q) = %v, want ErrExpired", other, err)
		}
	}
	for _, other := range [][]Order{nil, byName[:1], {byName[1], byName[0]}, {byName[0], {Property: "created"}}} {
		if _, err := tokens.Open(token, other); !errors.Is(err, ErrExpired) {
			t.Errorf("Open() in the order %v = %v, want ErrExpired", other, err)
		}
	}
	if _, err := tokensOf(t, 2).Open(token, byName); !errors.Is(err, ErrExpired) {
		t.Errorf("Open() with another key = %v, want ErrExpired", err)
	}
}

// FuzzToken searches for texts that are accepted although the key did not seal them. It also opens the texts as the
// content of a token, as if the key were known.
func FuzzToken(f *testing.F) {
	made, other := tokensOf(f, 1), tokensOf(f, 2)
	row := Place{Row: make([]byte, testRowBytes)}
	for _, seed := range []string{"", "a", "====", "{}", `{"r":"AAAAAA=="}`, made.Seal(row, nil), other.Seal(row, nil)} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, sealed bool) {
		for _, orders := range [][]Order{nil, byName} {
			given := text
			if sealed {
				given = base64.RawURLEncoding.EncodeToString(made.sealer.Seal(nil, nil, []byte(text), nil))
			}
			got, err := made.Open(given, orders)
			switch {
			case err != nil && !errors.Is(err, ErrExpired):
				t.Errorf("Open(%q) = %v, want ErrExpired", given, err)
			case err == nil && (len(got.Keys) != len(orders) || len(orders) == 0 && len(got.Row) != testRowBytes):
				t.Errorf("Open(%q) = %+v, want a row, or a key for each of %d orders", given, got, len(orders))
			}
			if sealed {
				if _, err := other.Open(given, orders); !errors.Is(err, ErrExpired) {
					t.Errorf("Open(%q) of a token of another key = %v, want ErrExpired", given, err)
				}
			}
		}
	})
}
