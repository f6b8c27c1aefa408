package embedded_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
)

// tokenOrders contains the orders whose tokens are tested.
var tokenOrders = map[string][]search.Order{"Unordered": nil, "By name": {{Property: "name"}}}

// tokenOf returns the token after the first items.
func tokenOf(t *testing.T, engine search.Engine, by []search.Order, limit int) string {
	t.Helper()
	result, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Items: true, Limit: limit, OrderBy: by})
	if err != nil {
		t.Fatal(err)
	}
	if result.Continue == "" {
		t.Fatalf("Continue after %d items is empty, want a token", limit)
	}
	return result.Continue
}

func continued(t *testing.T, engine search.Engine, by []search.Order, token string) error {
	t.Helper()
	_, err := engine.Search(t.Context(), visibility.Everything(), &search.Request{Items: true, Limit: 1, OrderBy: by, Continue: token})
	return err
}

// TestTokensAreOpaque checks that two tokens do not reveal the distance between their positions.
// All of their bytes differ between pages, and between questions for the same page, and all tokens
// have the same length.
func TestTokensAreOpaque(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	apply(t, engine, round("a", 3))
	const asked = 64
	lengths, bytes := sets.New[int](), map[int]sets.Set[byte]{}
	for i := range asked {
		token := tokenOf(t, engine, nil, 1+i%2)
		decoded, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		lengths.Insert(len(decoded))
		for at, b := range decoded {
			if bytes[at] == nil {
				bytes[at] = sets.New[byte]()
			}
			bytes[at].Insert(b)
		}
	}
	if lengths.Len() != 1 {
		t.Errorf("lengths of tokens = %v, want one length", sets.List(lengths))
	}
	for at, values := range bytes {
		// Of 64 random bytes, about 57 are different. If only 16 are different, the bytes are not
		// random.
		if values.Len() < asked/4 {
			t.Errorf("byte %d of %d tokens has the values %v, want more values", at, asked, sets.List(values))
		}
	}
}

func TestDamagedTokensAreRefused(t *testing.T) {
	engine := open(t, t.TempDir(), embedded.Options{})
	defer closed(t, engine)
	apply(t, engine, round("a", 3))
	for name, by := range tokenOrders {
		t.Run(name, func(t *testing.T) {
			token := tokenOf(t, engine, by, 5)
			if err := continued(t, engine, by, token); err != nil {
				t.Fatalf("Search() with the unchanged token = %v, want nil", err)
			}
			decoded, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil {
				t.Fatal(err)
			}
			for bit := range 8 * len(decoded) {
				decoded[bit/8] ^= 1 << (bit % 8)
				if err := continued(t, engine, by, base64.RawURLEncoding.EncodeToString(decoded)); !errors.Is(err, search.ErrExpired) {
					t.Errorf("Search() with bit %d flipped = %v, want ErrExpired", bit, err)
				}
				decoded[bit/8] ^= 1 << (bit % 8)
			}
			for _, length := range []int{1, 12, len(decoded) - 1} {
				if err := continued(t, engine, by, base64.RawURLEncoding.EncodeToString(decoded[:length])); !errors.Is(err, search.ErrExpired) {
					t.Errorf("Search() with the first %d bytes = %v, want ErrExpired", length, err)
				}
			}
		})
	}
}

func TestTokensOfAnotherProcessOrOrderAreRefused(t *testing.T) {
	dir := t.TempDir()
	engine := open(t, dir, embedded.Options{})
	apply(t, engine, round("a", 3))
	tokens := map[string]string{}
	for name, by := range tokenOrders {
		tokens[name] = tokenOf(t, engine, by, 5)
		for other, otherBy := range tokenOrders {
			if name == other {
				continue
			}
			if err := continued(t, engine, otherBy, tokens[name]); !errors.Is(err, search.ErrExpired) {
				t.Errorf("Search() by %[2]q with a token of the order %[1]q = %[3]v, want ErrExpired", name, other, err)
			}
		}
	}
	closed(t, engine)
	engine = open(t, dir, embedded.Options{})
	defer closed(t, engine)
	for name, by := range tokenOrders {
		if err := continued(t, engine, by, tokens[name]); !errors.Is(err, search.ErrExpired) {
			t.Errorf("Search() by %s with a token from before the restart = %v, want ErrExpired", name, err)
		}
	}
}
