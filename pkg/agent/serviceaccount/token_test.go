package serviceaccount

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// payload is the content of a token.
type payload map[string]any

// sign returns a token without a valid signature. Only servers verify signatures.
func (p payload) sign() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + ".c2ln"
}

// tokenOf returns the content of a token of ServiceAccount ns/name.
func tokenOf(uid types.UID, issued time.Time, lifetime time.Duration) payload {
	return payload{
		"sub": "system:serviceaccount:ns:name", "aud": []string{"a"}, "iat": issued.Unix(), "exp": issued.Add(lifetime).Unix(),
		"kubernetes.io": map[string]any{"namespace": "ns", "serviceaccount": map[string]any{"name": "name", "uid": uid}},
	}
}

func TestParseToken(t *testing.T) {
	issued := time.Unix(1_800_000_000, 0)
	got, err := parseToken(tokenOf("uid", issued, time.Hour).sign())
	if err != nil {
		t.Fatal(err)
	}
	if got.subject != "system:serviceaccount:ns:name" || got.accountUID != "uid" || fmt.Sprint(got.audiences) != "[a]" || !got.issued.Equal(issued) || !got.expires.Equal(issued.Add(time.Hour)) {
		t.Errorf("parseToken() = %+v, want the claims of the token", got)
	}
	with := func(key string, value any) string {
		p := tokenOf("uid", issued, time.Hour)
		if value == nil {
			delete(p, key)
		} else {
			p[key] = value
		}
		return p.sign()
	}
	for what, token := range map[string]string{
		"one audience":     with("aud", "a"),
		"fraction":         with("iat", 1_800_000_000.5),
		"no audience":      with("aud", nil),
		"unknown claim":    with("more", payload{"x": 1}),
		"not bound to UID": with("kubernetes.io", nil),
	} {
		if got, err := parseToken(token); err != nil || !got.issued.Equal(issued) {
			t.Errorf("%s: parseToken() = %+v, %v, want a token without an error", what, got, err)
		}
	}
	for what, token := range map[string]string{
		"empty": "", "no token": "abc", "two parts": "a.b", "not base64": "a.%.c", "not JSON": "a." + base64.RawURLEncoding.EncodeToString([]byte("x")) + ".c",
		"legacy, without expiry": with("exp", nil), "without time of issue": with("iat", nil),
		"expired at issue": with("exp", issued.Unix()), "text as time": with("exp", "tomorrow"),
		"absurd time": with("exp", 1e300), "negative time": with("iat", -1), "number as audience": with("aud", 1),
	} {
		if got, err := parseToken(token); err == nil {
			t.Errorf("%s: parseToken() = %+v, want an error", what, got)
		}
	}
}

// TestDue checks that a token is due between 75 % and 80 % of its granted lifetime, and always at
// the same time. The tokens of many accounts must be spread over this interval.
func TestDue(t *testing.T) {
	issued := time.Unix(1_800_000_000, 0)
	for _, lifetime := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 8640 * time.Hour} {
		const accounts = 1000
		parts := map[int]int{}
		for i := range accounts {
			c := claims{accountUID: types.UID(fmt.Sprint(i)), issued: issued, expires: issued.Add(lifetime)}
			age := c.due().Sub(issued)
			if age < lifetime/100*75 || age > lifetime/5*4 {
				t.Fatalf("lifetime %s: due after %s, want 75 %% to 80 %%", lifetime, age)
			}
			if !c.due().Equal(issued.Add(age)) {
				t.Fatal("due() returned two different times, want one")
			}
			parts[int(10*(age-lifetime/100*75)/(lifetime/20+1))]++
		}
		for part := range 10 {
			if n := parts[part]; n < accounts/20 || n > accounts/5 {
				t.Errorf("lifetime %s: %d of %d tokens are due in part %d of 10, want 5 %% to 20 %%", lifetime, n, accounts, part)
			}
		}
	}
	// The next token of the same account is due at another fraction of its lifetime.
	first := claims{accountUID: "u", issued: issued, expires: issued.Add(time.Hour)}
	second := claims{accountUID: "u", issued: issued.Add(time.Hour), expires: issued.Add(2 * time.Hour)}
	if first.due().Sub(first.issued) == second.due().Sub(second.issued) {
		t.Error("two tokens of one account have the same jitter, want different jitter")
	}
}

func TestRequest(t *testing.T) {
	spec := func(validity string, audiences ...string) *v1beta1.ManagedServiceAccountSpec {
		return &v1beta1.ManagedServiceAccountSpec{Audiences: audiences, Rotation: v1beta1.ManagedServiceAccountRotation{Validity: validity}}
	}
	for _, test := range []struct {
		a, b *v1beta1.ManagedServiceAccountSpec
		same bool
	}{
		{spec("24h"), spec("1440m"), true},
		{spec(""), spec("0s"), true},
		{spec("0s"), spec("8640h0m0s"), true},
		{spec("24h", "a", "b"), spec("24h", "b", "a"), true},
		{spec("24h"), spec("25h"), false},
		{spec("24h"), spec("24h", "a"), false},
		{spec("24h", "ab"), spec("24h", "a", "b"), false},
	} {
		a, errA := requestOf(test.a)
		b, errB := requestOf(test.b)
		if errA != nil || errB != nil || (a.text == b.text) != test.same {
			t.Errorf("requestOf() = %s, %v and %s, %v, want same request = %t", a.text, errA, b.text, errB, test.same)
		}
	}
	if got, err := requestOf(spec("2000000h")); err != nil || got.seconds != 1<<32 {
		t.Errorf("requestOf(2000000h) = %d seconds, %v, want 1<<32", got.seconds, err)
	}
	for _, validity := range []string{"abc", "1m", "-1h", "24"} {
		if _, err := requestOf(spec(validity)); err == nil {
			t.Errorf("requestOf(validity %q) = nil, want an error", validity)
		}
	}
}

func TestFresh(t *testing.T) {
	c := claims{issued: time.Unix(1000, 0), expires: time.Unix(2000, 0)}
	if !c.fresh(time.Unix(1099, 0)) || c.fresh(time.Unix(1100, 0)) {
		t.Error("fresh() is wrong at one tenth of the lifetime, want true before and false after")
	}
}
