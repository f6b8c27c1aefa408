package query

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

func TestDecodeProperties(t *testing.T) {
	scalar := func(name string, typ Type, text string) Property {
		return Property{Name: name, Type: typ, Leaves: []Leaf{{Type: typ, Text: text}}}
	}
	for name, test := range map[string]struct {
		object string
		want   Properties
	}{
		"empty":                           {" {\n} ", Properties{}},
		"scalars":                         {`{"a":"x","b":1.50,"c":true,"d":false}`, Properties{scalar("a", String, "x"), scalar("b", Number, "1.50"), scalar("c", Bool, "true"), scalar("d", Bool, "false")}},
		"order of names":                  {`{"b":"1","a":"2"}`, Properties{scalar("a", String, "2"), scalar("b", String, "1")}},
		"last of duplicate names":         {`{"a":"1","b":"2","a":"3"}`, Properties{scalar("a", String, "3"), scalar("b", String, "2")}},
		"null":                            {`{"a":null,"b":"1"}`, Properties{scalar("b", String, "1")}},
		"null as last of duplicate names": {`{"a":"1","a":null}`, Properties{}},
		"numbers keep text":               {`{"a":-0.10e+5,"b":12345678901234567890}`, Properties{scalar("a", Number, "-0.10e+5"), scalar("b", Number, "12345678901234567890")}},
		"empty map and list":              {`{"a":{},"b":[ ]}`, Properties{{Name: "a", Type: Map, Leaves: []Leaf{}}, {Name: "b", Type: List, Leaves: []Leaf{}}}},
		"map": {`{"a":{"y":"1","x":2,"z":null,"y":true}}`, Properties{{Name: "a", Type: Map, Leaves: []Leaf{
			{Key: "x", Type: Number, Text: "2"}, {Key: "y", Type: Bool, Text: "true"},
		}}}},
		"list": {`{"a":["y",2,null,false]}`, Properties{{Name: "a", Type: List, Leaves: []Leaf{
			{Text: "y"}, {Type: Number, Text: "2"}, {Type: Bool, Text: "false"},
		}}}},
		"nested": {`{"a":{"m":{ "z" : [ 1 , null ], "b":"\u003c\/" }},"l":[ [ ] , { } ]}`, Properties{
			{Name: "a", Type: Map, Leaves: []Leaf{{Key: "m", Type: JSON, Text: `{"z":[1,null],"b":"</"}`}}},
			{Name: "l", Type: List, Leaves: []Leaf{{Type: JSON, Text: "[]"}, {Type: JSON, Text: "{}"}}},
		}},
		"escapes":         {`{"a\u0062":"\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00"}`, Properties{scalar("ab", String, "\"\\/\b\f\n\r\téé😀")}},
		"lone surrogates": {`{"a":"\ud83dx\ude00\ud83d\u0041"}`, Properties{scalar("a", String, "\uFFFDx\uFFFD\uFFFDA")}},
		"not UTF-8":       {"{\"a\":\"x\xff\"}", Properties{scalar("a", String, "x\uFFFD")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeProperties([]byte(test.object))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("DecodeProperties() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodePropertiesRefuses(t *testing.T) {
	for _, object := range []string{
		"", " ", "null", "[]", `"a"`, "{", "{}x", "{}{}", "{}\x00", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `{'a':1}`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`, `{"a":-}`, `{"a":NaN}`, `{"a":tru}`, `{"a":truex}`, `{"a":nul}`, `{"a":0x1}`,
		`{"a":"x`, `{"a":"\`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\u+123"}`, "{\"a\":\"\n\"}", "{\"a\":\"\\n\n\"}",
		`{"a":{"b"}}`, `{"a":{"b":1]}`, `{"a":[1}`, `{"a":[1,]}`, `{"a":[[1}]}`, `{"a":[[01]]}`, `{"a":{"b":{"c":tru}}}`,
		`{"a":` + strings.Repeat("[", 2*maxDepth) + strings.Repeat("]", 2*maxDepth) + "}",
	} {
		got, err := DecodeProperties([]byte(object))
		if err == nil {
			t.Errorf("DecodeProperties(%.40q) = %v, want an error", object, got)
		} else if !strings.Contains(err.Error(), "offset ") {
			t.Errorf("DecodeProperties(%.40q) error = %v, want an offset", object, err)
		}
	}
}

// TestDecodeManyLeaves decodes more leaves than the decoder allocates initially.
func TestDecodeManyLeaves(t *testing.T) {
	want := map[string]any{}
	for i := range 200 {
		want[fmt.Sprintf("map%03d", i)] = map[string]any{"a": "x", "b": fmt.Sprint(i)}
		want[fmt.Sprintf("text%03d", i)] = fmt.Sprint(i)
	}
	object, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(decoded(t, string(object)).AppendJSON(nil)); got != string(object) {
		t.Error("AppendJSON() of the decoded properties differs from the object")
	}
}

func TestAppendJSON(t *testing.T) {
	for name, test := range map[string]struct {
		properties Properties
		want       string
	}{
		"no properties":    {nil, "{}"},
		"unchanged sample": {decoded(t, sample), sample},
		"no HTML escapes":  {Properties{{Name: "a<&>", Leaves: []Leaf{{Text: "<&>'\u2028é"}}}}, "{\"a<&>\":\"<&>'\u2028é\"}"},
		"escapes":          {Properties{{Name: "a", Leaves: []Leaf{{Text: "\"\\\b\f\n\r\t\x00\x1f/"}}}}, `{"a":"\"\\\b\f\n\r\t\u0000\u001f/"}`},
		"not UTF-8":        {Properties{{Name: "\xffa", Leaves: []Leaf{{Text: "é\xc3\xa9\xc3"}}}}, "{\"\uFFFDa\":\"éé\uFFFD\"}"},
		"order":            {Properties{{Name: "b", Type: List}, {Name: "a", Type: Map, Leaves: []Leaf{{Key: "y"}, {Key: "x"}}}}, `{"a":{"x":"","y":""},"b":[]}`},
		"without a leaf":   {Properties{{Name: "a"}, {Name: "b", Type: Number, Leaves: []Leaf{{Type: Number, Text: "1"}}}}, `{"b":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(test.properties.AppendJSON([]byte("before"))); got != "before"+test.want {
				t.Errorf("AppendJSON() = %s\nwant before%s", got, test.want)
			}
		})
	}
}

func TestGet(t *testing.T) {
	properties := decoded(t, `{"b":1,"a":2,"d":3}`)
	for i, name := range []string{"a", "b", "d"} {
		if got := properties.Get(name); got != &properties[i] {
			t.Errorf("Get(%s) = %v, want property %d", name, got, i)
		}
	}
	for _, name := range []string{"", "A", "c", "e"} {
		if got := properties.Get(name); got != nil {
			t.Errorf("Get(%s) = %v, want nil", name, got)
		}
	}
}

func TestIsTime(t *testing.T) {
	for text, want := range map[string]bool{
		"2025-11-01T12:00:00Z": true, "2025-11-01T12:00:00.123456789Z": true, "2025-11-01T12:00:00-05:30": true,
		"": false, "2025-11-01": false, "2025-11-01T12:00:00": false, "2025-11-01 12:00:00Z": false, "2025-11-01T12:00:00,5Z": false,
		"2025-13-01T12:00:00Z": false, "2025-02-29T12:00:00Z": false, "2025-11-01T24:00:00Z": false, "2025-11-01T12:00:00Zx": false,
		"2025-11-01T1:00:00:00Z": false, "nginx-proxy-T1:x2:x3-abcdefgh": false,
	} {
		if got := IsTime(text); got != want {
			t.Errorf("IsTime(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestCompareTexts(t *testing.T) {
	want := []Leaf{
		{Type: Number, Text: "-1"}, {Text: "0.5"}, {Type: Number, Text: "9"}, {Type: Number, Text: "10"}, {Text: "1e3"},
		{Text: "2025-11-01T12:00:00+02:00"}, {Text: "2025-11-01T11:00:00Z"},
		{Text: ""}, {Text: "007"}, {Type: Number, Text: "1e999"}, {Text: "Running"}, {Key: "app", Text: "web"}, {Key: "b", Text: "1"}, {Text: "running"}, {Type: Bool, Text: "true"}, {Text: "é"},
	}
	got := slices.Clone(want)
	random := seed.Rand(t)
	for range 100 {
		random.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, func(a, b Leaf) int { return CompareTexts(OrderText(a), OrderText(b)) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("order of leaves (-want +got):\n%s", diff)
		}
	}
	for _, same := range [][2]string{{"1", "1.0"}, {"2025-11-01T12:00:00+01:00", "2025-11-01T11:00:00Z"}, {"a", "a"}} {
		if CompareTexts(same[0], same[1]) != 0 {
			t.Errorf("CompareTexts(%s, %s) is not 0, want 0", same[0], same[1])
		}
	}
}

// generic decodes an object with the standard library and drops nulls.
func generic(t *testing.T, object string) map[string]any {
	decoder := json.NewDecoder(strings.NewReader(object))
	decoder.UseNumber()
	var all map[string]any
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("%q is not a JSON object: %v", object, err)
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	for name, value := range all {
		switch value := value.(type) {
		case map[string]any:
			maps.DeleteFunc(value, func(_ string, value any) bool { return value == nil })
		case []any:
			all[name] = slices.DeleteFunc(value, func(value any) bool { return value == nil })
		}
	}
	return all
}

func FuzzProperties(f *testing.F) {
	for _, seed := range []string{
		sample, "{}", `{"b":1,"a":null,"b":[]}`, `{"a":{"y":1,"x":[1, 2],"y":{"q" : null}}}`, `{"a":"\ud83d\ude00\u0000\ud83d"}`, "{\"a\":\"\xff\"}",
		`{"a":1e999,"b":-0}`, `{"a":[[[]],null],"":{"":""}}`, `{"a":"x`, `{"a":"\`, "{\"\xfc\x80\":[]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		properties, err := DecodeProperties(data)
		if err != nil {
			return
		}
		written := properties.AppendJSON(nil)
		if diff := cmp.Diff(generic(t, strings.ToValidUTF8(string(data), "\uFFFD")), generic(t, string(written))); diff != "" {
			t.Fatalf("AppendJSON() of decoded properties (-read +written):\n%s", diff)
		}
		again, err := DecodeProperties(written)
		if err != nil {
			t.Fatalf("DecodeProperties(%q) = %v, want nil", written, err)
		}
		if diff := cmp.Diff(properties, again); diff != "" {
			t.Fatalf("properties after AppendJSON() and DecodeProperties() (-before +after):\n%s", diff)
		}
		if twice := again.AppendJSON(nil); string(twice) != string(written) {
			t.Fatalf("AppendJSON() = %q, and %q after decoding, want equal results", written, twice)
		}
		for i := range properties {
			if properties.Get(properties[i].Name) != &properties[i] {
				t.Fatalf("Get(%q) does not return the property", properties[i].Name)
			}
		}
	})
}

// FuzzScalars searches for values that only the standard library or only this package accepts.
func FuzzScalars(f *testing.F) {
	for _, seed := range []string{"1", "-1.5e+3", "01", "1.", "true", "null", `"a\u00e9"`, `"\q"`, " 1 ", "1 2", "nul", "\x00", "\"\x7f\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		object := `{"a":` + strings.ToValidUTF8(value, "\uFFFD") + "}"
		if strings.Count(object, "[")+strings.Count(object, "{") > maxDepth {
			return
		}
		if _, err := DecodeProperties([]byte(object)); (err == nil) != json.Valid([]byte(object)) {
			t.Errorf("DecodeProperties(%q) = %v, want an error exactly for invalid JSON", object, err)
		}
	})
}

func BenchmarkDecodeProperties(b *testing.B) {
	data := []byte(sample)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeProperties(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	properties := decoded(b, sample)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = properties.AppendJSON(dst[:0])
	}
}

func BenchmarkCompareTexts(b *testing.B) {
	for name, leaves := range map[string][2]Leaf{
		"numbers": {{Type: Number, Text: "12"}, {Type: Number, Text: "9"}},
		"times":   {{Text: "2025-11-01T12:00:00Z"}, {Text: "2025-11-01T11:00:00Z"}},
		"texts":   {{Text: "nginx-7c9d8f6b54"}, {Text: "nginx-7c9d8f6b55"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				CompareTexts(OrderText(leaves[0]), OrderText(leaves[1]))
			}
		})
	}
}
