package graphql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// FuzzItems compares encoded items with properties that are decoded and encoded again.
func FuzzItems(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":"b","c":1,"d":true,"e":{},"f":[]}`, `{"m":{"k":"v","j":"w","n":1.5e3,"o":{"p":["\"\\"]}}}`,
		`{"l":["b","a","",3,false,[1,"x"],{"y":"\u0001"}]}`, `{"quote":"\"","back":"\\","both":"\\\"","unicode":"ü\ud83d\ude00"}`,
		`{"cluster":"forged","_uid":"forged","_hubClusterResource":"forged","_relatedUids":"forged"}`, `{"label":{"a\"b":"c\\"}}`,
	} {
		f.Add(seed, "east/1", false)
	}
	f.Fuzz(func(t *testing.T, text, uid string, hub bool) {
		properties, err := query.DecodeProperties([]byte(text))
		if err != nil {
			return
		}
		item := &search.Item{UID: uid, Cluster: "east", Hub: hub, Object: properties, RelatedTo: []string{uid}}
		var got map[string]any
		if data := appendItem(nil, item); json.Unmarshal(data, &got) != nil {
			t.Fatalf("appendItem() = %s, want JSON", data)
		}
		valid := strings.ToValidUTF8(uid, "\uFFFD")
		want := map[string]any{query.UID: valid, query.Cluster: "east", query.RelatedUIDs: []any{valid}}
		if hub {
			want[query.HubResource] = "true"
		}
		for _, p := range properties {
			if want[p.Name] == nil && p.Name != query.HubResource {
				want[p.Name] = naive(p)
			}
		}
		if gotten, wanted := fmt.Sprint(got), fmt.Sprint(want); gotten != wanted && !strings.ContainsRune(uid, '\uFFFD') && valid == uid {
			t.Errorf("appendItem() =\n%s\nwant\n%s", gotten, wanted)
		}
		var typed map[string]any
		if data := appendTyped(nil, item); json.Unmarshal(data, &typed) != nil {
			t.Fatalf("appendTyped() = %s, want JSON", data)
		}
		if len(typed) != len(want) {
			t.Errorf("appendTyped() =\n%v\nwant the keys of\n%v", typed, want)
		}
	})
}

func naive(p query.Property) string {
	var texts []string
	for _, leaf := range p.Leaves {
		if p.Type == query.Map {
			texts = append(texts, leaf.Key+"="+leaf.Text)
		} else {
			texts = append(texts, leaf.Text)
		}
	}
	if p.Type == query.List {
		// Elements are ordered by their JSON.
		slices.SortFunc(p.Leaves, func(a, b query.Leaf) int { return strings.Compare(encoded(a), encoded(b)) })
		for i := range p.Leaves {
			texts[i] = p.Leaves[i].Text
		}
	}
	return strings.Join(texts, "; ")
}

func encoded(leaf query.Leaf) string {
	if leaf.Type != query.String {
		return leaf.Text
	}
	one := query.Properties{{Name: "l", Type: query.String, Leaves: []query.Leaf{leaf}}}
	return strings.TrimSuffix(strings.TrimPrefix(string(one.AppendJSON(nil)), `{"l":`), "}")
}

func TestOutline(t *testing.T) {
	tests := []struct {
		name, text, operation string
		subscribes            bool
		introspects           int
	}{
		{"a query without a name", `{ messages { id } }`, "", false, 0},
		{"a subscription", `subscription { watch { uid } }`, "", true, 0},
		{"one of two", `query a { messages { id } } subscription b($i: SearchInput = {limit: 1}) { watch(input: $i) { uid } }`, "b", true, 0},
		{"the other of two", `query a { messages { id } } subscription b { watch { uid } }`, "a", false, 0},
		{"a word in a comment", "# subscription {\n{ messages { id } }", "", false, 0},
		{"a word in a string", `{ search(input: {keywords: ["} subscription {"]}) { count } }`, "", false, 0},
		{"a word in a block", `{ search(input: {keywords: [""" \""" } subscription { """]}) { count } }`, "", false, 0},
		{"a fragment", `fragment subscription on Query { messages { id } } { ...subscription }`, "", false, 0},
		{"members of types", `{ __type(name: "Map") { fields { name } possibleTypes { name } } }`, "", false, 2},
		{"an unclosed string", `{ search(input: "`, "", false, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			doc := outline(test.text)
			if got := doc.subscribes(test.operation); got != test.subscribes || doc.introspects != test.introspects {
				t.Errorf("subscribes() = %t, introspects = %d, want %t, %d", got, doc.introspects, test.subscribes, test.introspects)
			}
		})
	}
}

// BenchmarkItems encodes a thousand items with twenty properties.
func BenchmarkItems(b *testing.B) {
	item := &search.Item{UID: "cluster-001/6f1b6c5e-7c0e-4a57-9d5e-0f3f3f5c8a11", Cluster: "cluster-001", Object: search.JSON(
		`{"_ownerUID":"cluster-001/0a","apiversion":"v1","condition":{"Initialized":"True","Ready":"True"},"container":["app","istio-proxy"],` +
			`"created":"2026-01-01T00:00:00Z","hostIP":"10.1.2.3","image":["quay.io/acme/nginx:1.2.3","quay.io/istio/proxy:1.20"],"kind":"Pod",` +
			`"kind_plural":"pods","label":{"app":"nginx","env":"prod","team":"team-07","tier":"web"},"name":"nginx-5d8f7c9b4d-x7k2p",` +
			`"namespace":"payments","podIP":"10.128.3.77","restarts":3,"startedAt":"2026-01-01T00:00:05Z","status":"Running"}`)}
	out := appendItem(nil, item)
	b.SetBytes(int64(1000 * len(out)))
	b.ReportAllocs()
	for b.Loop() {
		for range 1000 {
			out = appendItem(out[:0], item)
		}
	}
}
