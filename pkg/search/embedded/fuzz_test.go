package embedded

import (
	"errors"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// FuzzToken searches for texts that are accepted although this process did not create them. It also
// decodes the texts as the content of a token, as if the key were known.
func FuzzToken(f *testing.F) {
	made, err := newTokens()
	if err != nil {
		f.Fatal(err)
	}
	other, err := newTokens()
	if err != nil {
		f.Fatal(err)
	}
	by := []search.Order{{Property: "name"}, {Property: "created", Descending: true}}
	keyed := &token{uid: "c1/1", keys: []sortKey{newSortKey("a"), {missing: true}}}
	for _, seed := range []string{"", "a", "====", made.encode(&token{row: 7}, nil), made.encode(keyed, by), other.encode(&token{row: 7}, nil)} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, sealed bool) {
		for _, orders := range [][]search.Order{nil, by} {
			given := text
			if sealed {
				given = made.Seal([]byte(text))
			}
			got, err := made.parse(given, orders)
			switch {
			case err != nil && !errors.Is(err, search.ErrExpired):
				t.Errorf("parse(%q) = %v, want ErrExpired", given, err)
			case err == nil && (got.offset < 0 || len(got.keys) > len(orders)):
				t.Errorf("parse(%q) = %+v, want an offset of at least 0 and at most %d keys", given, got, len(orders))
			}
			if sealed && len(text) > 0 {
				if _, err := other.parse(given, orders); !errors.Is(err, search.ErrExpired) {
					t.Errorf("parse(%q) of a token of another process = %v, want ErrExpired", given, err)
				}
			}
		}
	})
}
