package rehoming

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math"
	"strings"
	"testing"
)

func TestParseEpoch(t *testing.T) {
	for text, want := range map[string]Epoch{"": {}, "1/a": {1, "a"}, "12/4f1c-9": {12, "4f1c-9"}, "0/a": {0, "a"}, "9007199254740992/a": {MaxEpochNumber, "a"}} {
		got, err := ParseEpoch(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseEpoch(%q) = %+v (%q), %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{
		"1", "1/", "/a", "-1/a", "a/1", "1/A", "1/a b", "1/" + strings.Repeat("a", 64), "99999999999999999999/a",
		"9007199254740993/a", "9223372036854775807/x", "+1/a", "01/a", "-0/a", "1_0/a", "1/a/b", " 1/a", "1/a\n", "1/\u00e4",
	} {
		if got, err := ParseEpoch(text); err == nil || got != (Epoch{}) {
			t.Errorf("ParseEpoch(%q) = %+v, %v, want an error", text, got, err)
		}
	}
	if _, err := ParseEpoch(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 200 {
		t.Errorf("ParseEpoch(1 MiB) = %v, want a short error", err)
	}
}

// TestNextEpoch checks that the next epoch follows the former one, or does not exist.
func TestNextEpoch(t *testing.T) {
	for _, number := range []int64{0, 7, MaxEpochNumber - 1} {
		if got, err := NextEpoch(number); err != nil || got != number+1 {
			t.Errorf("NextEpoch(%d) = %d, %v, want %d", number, got, err, number+1)
		}
	}
	for _, number := range []int64{math.MinInt64, -1, MaxEpochNumber, math.MaxInt64 - 1, math.MaxInt64} {
		if got, err := NextEpoch(number); err == nil {
			t.Errorf("NextEpoch(%d) = %d, want an error", number, got)
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
