package rehoming

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
)

func TestParseEpoch(t *testing.T) {
	for text, want := range map[string]Epoch{"": {}, "1/a": {1, "a"}, "12/4f1c-9": {12, "4f1c-9"}, "0/a": {0, "a"}} {
		got, err := ParseEpoch(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseEpoch(%q) = %+v (%q), %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{"1", "1/", "/a", "-1/a", "a/1", "1/A", "1/a b", "1/" + strings.Repeat("a", 64), "99999999999999999999/a"} {
		if got, err := ParseEpoch(text); err == nil {
			t.Errorf("ParseEpoch(%q) = %+v, want an error", text, got)
		}
	}
}

func TestFollows(t *testing.T) {
	for _, test := range []struct {
		a, b Epoch
		want bool
	}{{Epoch{}, Epoch{}, false}, {Epoch{1, "a"}, Epoch{}, true}, {Epoch{}, Epoch{1, "a"}, false}, {Epoch{1, "b"}, Epoch{1, "a"}, false}, {Epoch{2, "b"}, Epoch{1, "a"}, true}} {
		if got := test.a.Follows(test.b); got != test.want {
			t.Errorf("%q.Follows(%q) = %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

func request(content string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte(content)})
}

func newKey(t *testing.T) (key []byte, hash string) {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if hash, err = KeyHash(key); err != nil {
		t.Fatal(err)
	}
	return key, hash
}

// TestProof checks that a proof holds only for its key and its request.
func TestProof(t *testing.T) {
	key, keyHash := newKey(t)
	otherKey, otherHash := newKey(t)
	proved := func(key []byte, content string) string {
		proof, err := Prove(key, request(content))
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	// swapped names the key of the cluster, and is signed with another key.
	swapped := func() string {
		decode := func(encoded string) (p proof) {
			content, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(content, &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		mixed := decode(proved(otherKey, "a"))
		mixed.Key = decode(proved(key, "a")).Key
		encoded, err := json.Marshal(mixed)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(encoded)
	}()
	for name, test := range map[string]struct {
		proof, hash, request, want string
	}{
		"own":             {proved(key, "a"), keyHash, "a", ""},
		"another request": {proved(key, "a"), keyHash, "b", "does not match"},
		"another key":     {proved(otherKey, "a"), keyHash, "a", "another key"},
		"another cluster": {proved(key, "a"), otherHash, "a", "another key"},
		"no hash":         {proved(key, "a"), "", "a", "another key"},
		"swapped key":     {swapped, keyHash, "a", "does not match"},
		"none":            {"", keyHash, "a", "no proof"},
		"not base64":      {"%", keyHash, "a", "base64"},
		"not JSON":        {"aaaa", keyHash, "a", "parsed"},
		"too long":        {strings.Repeat("a", maxProof+1), keyHash, "a", "longer"},
	} {
		err := Verify(test.proof, test.hash, request(test.request))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("Verify(%s) = %v, want %q", name, err, test.want)
		}
	}
}
