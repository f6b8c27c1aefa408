package ingest

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

// summary returns a report as text, with one line for each part.
func summary(report *search.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s hub=%v full=%v\n", report.Cluster, report.Hub, report.Full)
	for _, r := range report.Put {
		fmt.Fprintf(&b, "put %s %s\n", r.UID, r.Properties.AppendJSON(nil))
	}
	for _, uid := range report.Delete {
		fmt.Fprintf(&b, "delete %s\n", uid)
	}
	for _, e := range report.AddEdges {
		fmt.Fprintf(&b, "edge %s %s -%s-> %s %s\n", e.SourceKind, e.SourceUID, e.Type, e.DestKind, e.DestUID)
	}
	for _, e := range report.DeleteEdges {
		fmt.Fprintf(&b, "delete edge %s -%s-> %s\n", e.SourceUID, e.Type, e.DestUID)
	}
	return b.String()
}

// refusalsOf returns the errors of a response as text.
func refusalsOf(response *inventory.Response) string {
	var b strings.Builder
	for _, list := range []struct {
		name   string
		errors []inventory.SyncError
	}{
		{"add", response.AddErrors}, {"update", response.UpdateErrors}, {"delete", response.DeleteErrors},
		{"add edge", response.AddEdgeErrors}, {"delete edge", response.DeleteEdgeErrors},
	} {
		for _, e := range list.errors {
			fmt.Fprintf(&b, "%s %s: %s\n", list.name, e.ResourceUID, e.Message)
		}
	}
	return b.String()
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name      string
		hub, full bool
		limits    Limits
		body      string
		want      string
		refused   string
	}{
		{
			name: "all parts of a report",
			body: `{"version":"2.13",
				"addResources":[{"kind":"Pod","uid":"c1/a","resourceString":"pods","properties":{"kind":"Pod","kind_plural":"pods","name":"a","label":{"app":"x"},"restarts":3,"container":["m","n"]}}],
				"updateResources":[{"uid":"c1/b","properties":{"kind":"Node","name":"b"}}],
				"deleteResources":[{"uid":"c1/gone"}],
				"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","SourceKind":"Pod","DestKind":"Node","EdgeType":"runsOn"}],
				"deleteEdges":[{"SourceUID":"c1/a","DestUID":"c1/c","SourceKind":"Pod","DestKind":"Node","EdgeType":"runsOn"}]}`,
			want: `c1 hub=false full=false
put c1/a {"container":["m","n"],"kind":"Pod","kind_plural":"pods","label":{"app":"x"},"name":"a","restarts":3}
put c1/b {"kind":"Node","name":"b"}
delete c1/gone
edge Pod c1/a -runsOn-> Node c1/b
delete edge c1/a -runsOn-> c1/c
`,
		},
		{
			name: "a heartbeat", body: `{"version":"2.13"}`,
			want: "c1 hub=false full=false\n",
		},
		{
			name: "null for empty lists", body: `{"addResources":null,"deleteResources":null,"addEdges":null}`,
			want: "c1 hub=false full=false\n",
		},
		{
			name: "names of fields in any case, like encoding/json",
			body: `{"ADDRESOURCES":[{"Uid":"c1/a","PROPERTIES":{"kind":"Pod","name":"a"}}],"addedges":[{"sourceUID":"c1/a","destUID":"c1/b","sourceKind":"Pod","destKind":"Node","edgeType":"runsOn"}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Pod\",\"name\":\"a\"}\nedge Pod c1/a -runsOn-> Node c1/b\n",
		},
		{
			name: "escaped names and values", body: `{"\u0061ddResources":[{"u\u0069d":"c1\/\u0061","properties":{"kind":"Pod","name":"\u0061\"<"}}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Pod\",\"name\":\"a\\\"<\"}\n",
		},
		{
			name: "unknown fields", body: `{"x":[[{}]],"requestId":7,"addResources":[{"Metadata":{"OwnerUID":"z"},"uid":"c1/a","properties":{"kind":"Pod","name":"a"},"y":null}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Pod\",\"name\":\"a\"}\n",
		},
		{
			name: "clearAll", body: `{"addResources":[],"clearAll":true}`,
			want: "c1 hub=false full=true\n",
		},
		{
			name: "the header takes precedence over clearAll", full: true, body: `{"clearAll":false}`,
			want: "c1 hub=false full=true\n",
		},
		{
			name: "a full report does not contain the resources that it deletes", full: true,
			body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a"}},{"uid":"c1/b","properties":{"kind":"Pod","name":"b"}}],"deleteResources":[{"uid":"c1/a"}]}`,
			want: "c1 hub=false full=true\nput c1/b {\"kind\":\"Pod\",\"name\":\"b\"}\n",
		},
		{
			name: "last of duplicate UIDs",
			body: `{"updateResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","status":"Pending"}}],"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","status":"Running"}}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Pod\",\"name\":\"a\",\"status\":\"Running\"}\n",
		},
		{
			name: "last of duplicate names",
			body: `{"addResources":[{"uid":"c2/a","uid":"c1/a","properties":7,"properties":{"kind":"Pod","name":"a","name":"b"}}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Pod\",\"name\":\"b\"}\n",
		},
		{
			name: "last of duplicate names, with a foreign UID",
			body: `{"addResources":[{"uid":"c1/a","uid":"c2/a","properties":{"kind":"Pod","name":"a"}}]}`,
			want: "c1 hub=false full=false\n", refused: "add c2/a: uid must begin with \"c1/\" in reports of this cluster\n",
		},
		{
			name: "duplicate lists are merged",
			body: `{"deleteResources":[{"uid":"c1/a"}],"deleteResources":[{"uid":"c1/b"}]}`,
			want: "c1 hub=false full=false\ndelete c1/a\ndelete c1/b\n",
		},
		{
			name: "resource that is put and deleted",
			body: `{"deleteResources":[{"uid":"c1/a"}],"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a"}}],
				"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","SourceKind":"Pod","EdgeType":"t"}],"deleteEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"t"}]}`,
			want: "c1 hub=false full=false\ndelete c1/a\ndelete edge c1/a -t-> c1/b\n",
		},
		{
			name: "kind and plural name of the resource are used if the properties lack them",
			body: `{"addResources":[{"kind":"Secret","resourceString":"secrets","uid":"c1/a","properties":{"name":"a","kind":""}},{"kind":"X","resourceString":"xs","uid":"c1/b","properties":{"name":"b","kind":"Secret","kind_plural":"secrets"}}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"kind\":\"Secret\",\"kind_plural\":\"secrets\",\"name\":\"a\"}\nput c1/b {\"kind\":\"Secret\",\"kind_plural\":\"secrets\",\"name\":\"b\"}\n",
		},
		{
			name: "a managed cluster that claims to be the hub, or another cluster",
			body: `{"addResources":[{"uid":"c1/a","properties":{"_hubClusterResource":true,"_uid":"c2/x","_relatedUids":["c2/x"],"cluster":"c2","kind":"Pod","name":"a","_ownerUID":"c1/o"}}]}`,
			want: "c1 hub=false full=false\nput c1/a {\"_ownerUID\":\"c1/o\",\"kind\":\"Pod\",\"name\":\"a\"}\n",
		},
		{
			name: "the hub, with a false property", hub: true,
			body: `{"addResources":[{"uid":"c1/a","properties":{"_hubClusterResource":"no","kind":"Pod","name":"a"}},{"uid":"c1/b","properties":{"kind":"Pod","name":"b"}}]}`,
			want: "c1 hub=true full=false\nput c1/a {\"_hubClusterResource\":true,\"kind\":\"Pod\",\"name\":\"a\"}\nput c1/b {\"_hubClusterResource\":true,\"kind\":\"Pod\",\"name\":\"b\"}\n",
		},
		{
			name: "UIDs that are not those of resources of the cluster",
			body: `{"addResources":[{"uid":"cluster__c1","properties":{"kind":"Cluster","name":"c1"}},
				{"uid":"c2/a","properties":{"kind":"Pod","name":"a"}},{"uid":"cluster__c2","properties":{"kind":"Cluster","name":"c2"}},
				{"uid":"c1/","properties":{"kind":"Pod","name":"a"}},{"uid":"c1","properties":{"kind":"Pod","name":"a"}},{"uid":"c10/a","properties":{"kind":"Pod","name":"a"}},
				{"properties":{"kind":"Pod","name":"a"}}],
				"deleteResources":[{"uid":"c2/a"},{}],
				"addEdges":[{"SourceUID":"c2/a","DestUID":"c1/a","EdgeType":"t"},{"SourceUID":"c1/a","DestUID":"c2/a","EdgeType":"t"},{"SourceUID":"c1/a","DestUID":"c1/b"}],
				"deleteEdges":[{"SourceUID":"c2/a","DestUID":"c2/b","EdgeType":"t"}]}`,
			want: "c1 hub=false full=false\n",
			refused: `add cluster__c1: the server adds the resource of kind Cluster from the ManagedCluster
add c2/a: uid must begin with "c1/" in reports of this cluster
add cluster__c2: uid must begin with "c1/" in reports of this cluster
add c1/: uid must begin with "c1/" in reports of this cluster
add c1: uid must begin with "c1/" in reports of this cluster
add c10/a: uid must begin with "c1/" in reports of this cluster
add : uid is missing
delete c2/a: uid must begin with "c1/" in reports of this cluster
delete : uid is missing
add edge c2/a: SourceUID: uid must begin with "c1/" in reports of this cluster
add edge c1/a: DestUID: uid must begin with "c1/" in reports of this cluster
add edge c1/a: EdgeType is missing
delete edge c2/a: SourceUID: uid must begin with "c1/" in reports of this cluster
`,
		},
		{
			name: "properties that cannot be stored", limits: Limits{Properties: 3, ResourceBytes: 100},
			body: `{"addResources":[{"uid":"c1/1","properties":{"kind":"Pod"}},{"uid":"c1/2","properties":{"name":"a"}},{"uid":"c1/3"},
				{"uid":"c1/4","properties":[1]},{"uid":"c1/5","properties":{"kind":"Pod","name":"a","a b":1}},{"uid":"c1/6","properties":{"kind":["Secret"],"name":"a"}},
				{"uid":"c1/7","properties":{"kind":"Pod","name":"a","x":1,"y":2}},{"uid":"c1/8","properties":{"kind":"Pod","name":"` + strings.Repeat("n", 100) + `"}},
				{"uid":"c1/9","properties":{"kind":"Pod","name":"a"}}],
				"updateResources":[{"uid":"c1/10","properties":{"kind":"Pod","name":"","x":1}}]}`,
			want: "c1 hub=false full=false\nput c1/9 {\"kind\":\"Pod\",\"name\":\"a\"}\n",
			refused: `add c1/1: name is missing
add c1/2: kind is missing
add c1/3: properties are missing
add c1/4: properties must be an object
add c1/5: property name "a b" must begin with a letter or underscore, and consist of letters, digits, _, ., - and /
add c1/6: property kind must be a string
add c1/7: more than 3 properties
add c1/8: properties are longer than 100 bytes
update c1/10: name is missing
`,
		},
		{
			name: "resources beyond the limit are skipped, regardless of their size",
			body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":"` + strings.Repeat("x", 1<<20) + `"}},
				{"uid":"c1/b","properties":{"kind":"Pod","name":"b","x":[` + strings.Repeat(`[{}],`, 1<<20) + `0]}},{"uid":"c1/c","properties":{"kind":"Pod","name":"c"}}]}`,
			want:    "c1 hub=false full=false\nput c1/c {\"kind\":\"Pod\",\"name\":\"c\"}\n",
			refused: "add c1/a: properties are longer than 65536 bytes\nadd c1/b: properties are longer than 65536 bytes\n",
		},
		{
			name: "long kinds, plurals, namespaces, names and relations",
			body: `{"addResources":[{"uid":"c1/a","kind":"` + strings.Repeat("K", 254) + `","properties":{"name":"a"}},
				{"uid":"c1/b","kind":"` + strings.Repeat("K", 1<<20) + `","properties":{"kind":"Pod","name":"b"}},
				{"uid":"c1/c","resourceString":"` + strings.Repeat("k", 1<<20) + `","properties":{"kind":"Pod","name":"c"}},
				{"uid":"c1/d","properties":{"kind":"Pod","name":"` + strings.Repeat("n", placeBytes+1) + `"}},
				{"uid":"c1/e","properties":{"kind":"Pod","name":"e","namespace":"` + strings.Repeat("n", placeBytes+1) + `"}},
				{"uid":"c1/f","properties":{"kind":"Pod","name":"f","apigroup":"` + strings.Repeat("n", 1025) + `"}}],
				"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"` + strings.Repeat("t", 129) + `"},
				{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"t","SourceKind":"` + strings.Repeat("K", 254) + `"},
				{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"t","DestKind":"` + strings.Repeat("K", 254) + `"}],
				"deleteEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"` + strings.Repeat("t", 1<<20) + `"}]}`,
			want: "c1 hub=false full=false\nput c1/b {\"kind\":\"Pod\",\"name\":\"b\"}\n",
			refused: `add c1/a: property kind is longer than 253 bytes
add c1/c: property kind_plural is longer than 1024 bytes
add c1/d: property name is longer than 16384 bytes
add c1/e: property namespace is longer than 16384 bytes
add c1/f: property apigroup is longer than 1024 bytes
add edge c1/a: EdgeType is longer than 128 bytes
add edge c1/a: SourceKind is longer than 253 bytes
add edge c1/a: DestKind is longer than 253 bytes
delete edge c1/a: EdgeType is longer than 128 bytes
`,
		},
		{
			name: "different names of properties, and relations", limits: Limits{Names: 4, Relations: 2},
			body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":1}},{"uid":"c1/b","properties":{"kind":"Pod","name":"b","y":1,"z":1}},
				{"uid":"c1/c","properties":{"kind":"Pod","name":"c","y":1}},{"uid":"c1/d","properties":{"kind":"Pod","name":"d","x":1,"y":2}}],
				"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"r"},{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"s"},
				{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"t"},{"SourceUID":"c1/a","DestUID":"c1/c","EdgeType":"r"}],
				"deleteEdges":[{"SourceUID":"c1/a","DestUID":"c1/d","EdgeType":"u"}]}`,
			want: `c1 hub=false full=false
put c1/a {"kind":"Pod","name":"a","x":1}
put c1/c {"kind":"Pod","name":"c","y":1}
put c1/d {"kind":"Pod","name":"d","x":1,"y":2}
edge  c1/a -r->  c1/b
edge  c1/a -s->  c1/b
edge  c1/a -r->  c1/c
delete edge c1/a -u-> c1/d
`,
			refused: "add c1/b: the report has more than 4 different names of properties\nadd edge c1/a: the report has more than 2 different EdgeTypes\n",
		},
		{
			name: "limit of errors", limits: Limits{Errors: 2},
			body:    `{"deleteResources":[{"uid":"a"},{"uid":"b"},{"uid":"c"},{"uid":"d"}]}`,
			want:    "c1 hub=false full=false\n",
			refused: "delete a: uid must begin with \"c1/\" in reports of this cluster\ndelete b: uid must begin with \"c1/\" in reports of this cluster\ndelete : 2 more errors\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"in one read":  strings.NewReader(test.body),
				"byte by byte": iotest.OneByteReader(strings.NewReader(test.body)),
			} {
				report, response, err := Decode(r, "c1", test.hub, test.full, test.limits)
				if err != nil {
					t.Fatalf("%s: Decode() = %v, want nil", name, err)
				}
				if diff := gocmp.Diff(test.want, summary(report)); diff != "" {
					t.Errorf("%s: report (-want +got):\n%s", name, diff)
				}
				if diff := gocmp.Diff(test.refused, refusalsOf(response)); diff != "" {
					t.Errorf("%s: errors (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	pod := `{"uid":"c1/a","properties":{"kind":"Pod","name":"a"}}`
	tests := []struct {
		name, body string
		limits     Limits
		want       string
		tooLarge   bool
	}{
		{name: "empty body", body: ``, want: "at byte 0: the body is empty"},
		{name: "no object", body: `[]`, want: "at byte 0: the report must be a JSON object"},
		{name: "no JSON", body: `{"addResources":nope}`, want: "at byte 17: invalid character 'o' in literal null (expecting 'u')"},
		{name: "an early end", body: `{"addResources":[` + pod, want: "at byte 70: unexpected EOF"},
		{name: "an early end in the properties", body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Po`, want: "at byte 55: unexpected EOF"},
		{name: "more after the end", body: `{} {}`, want: "at byte 4: unexpected data after the report"},
		{name: "resources that are no list", body: `{"addResources":{}}`, want: "at byte 15: a list was expected"},
		{name: "a resource that is no object", body: `{"addResources":["a"]}`, want: "at byte 17: an object was expected"},
		{name: "a UID that is no string", body: `{"addResources":[{"uid":7}]}`, want: "at byte 23: a string was expected"},
		{name: "clearAll that is no boolean", body: `{"clearAll":"true"}`, want: "at byte 11: clearAll must be true or false"},
		{name: "bytes that are no text", body: "{\"addResources\":[{\"uid\":\"c1/\xff\"}]}", want: "at byte 28: invalid UTF-8"},
		{name: "deep nesting in a resource", body: `{"addResources":[{"uid":"c1/a","properties":{"x":` + strings.Repeat("[", 20_000), want: "at byte 10045: exceeded max depth"},
		{name: "deep nesting in an unknown field", body: `{"x":` + strings.Repeat("[", 20_000), want: "at byte 10004: exceeded max depth"},
		{name: "an endless text", body: `{"x":"` + strings.Repeat("x", 5<<20), want: "at byte 4: a value is longer than 4194304 bytes"},
		{name: "endless space", body: `{` + strings.Repeat(" ", 5<<20), want: "at byte 1: a value is longer than 4194304 bytes"},
		{name: "a long body", body: `{"addResources":[` + pod + `]}`, limits: Limits{BodyBytes: 20}, tooLarge: true,
			want: "reading the report: the report is too large: the body has more than 20 bytes"},
		{name: "many resources", body: `{"addResources":[` + pod + `,` + pod + `,` + pod + `]}`, limits: Limits{Resources: 2}, tooLarge: true,
			want: "the report is too large: more than 2 resources"},
		{name: "many resources that are refused", body: `{"addResources":[{},{}],"deleteResources":[{}]}`, limits: Limits{Resources: 2}, tooLarge: true,
			want: "the report is too large: more than 2 resources"},
		{name: "many values", body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":[1,1,1]}}]}`, limits: Limits{Values: 4}, tooLarge: true,
			want: "the report is too large: more than 4 values"},
		{name: "many values in values", body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":[[1,{"b":2}]]}}]}`, limits: Limits{Values: 6}, tooLarge: true,
			want: "the report is too large: more than 6 values"},
		{name: "many empty values", body: `{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":[],"y":{}}}]}`, limits: Limits{Values: 3}, tooLarge: true,
			want: "the report is too large: more than 3 values"},
		{name: "many edges", body: `{"addEdges":[{}],"deleteEdges":[{}]}`, limits: Limits{Edges: 1}, tooLarge: true,
			want: "the report is too large: more than 1 edges"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := Decode(strings.NewReader(test.body), "c1", false, false, test.limits)
			if err == nil || err.Error() != test.want {
				t.Fatalf("Decode() = %v, want %s", err, test.want)
			}
			if format := new(FormatError); errors.As(err, &format) == test.tooLarge || errors.Is(err, ErrTooLarge) != test.tooLarge {
				t.Errorf("error = %#v, want a FormatError or ErrTooLarge as expected", err)
			}
		})
	}
}

func TestDecodeReturnsReadErrors(t *testing.T) {
	broken := errors.New("connection lost")
	_, _, err := Decode(io.MultiReader(strings.NewReader(`{"addResources":[`), iotest.ErrReader(broken)), "c1", false, false, Limits{})
	if !errors.Is(err, broken) {
		t.Errorf("Decode() = %v, want %v", err, broken)
	}
}

// TestDecodeMemoryIsBounded checks that rejected parts do not stay in memory, even if the body is
// long.
func TestDecodeMemoryIsBounded(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"arrays in a resource": io.MultiReader(strings.NewReader(`{"addResources":[{"uid":"c1/a","properties":{"kind":"Pod","name":"a","x":[`),
			io.LimitReader(repeat(`[[[],[{"a":1}]]],`), 100<<20/17*17), strings.NewReader(`0]}}]}`)),
		"an unknown field": io.MultiReader(strings.NewReader(`{"x":[`), io.LimitReader(repeat(`{"a":["b"]},`), 10<<20/12*12), strings.NewReader(`0]}`)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			report, _, err := Decode(body, "c1", false, false, Limits{})
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Put) != 0 {
				t.Errorf("decoded resources = %d, want 0", len(report.Put))
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
				t.Errorf("allocated bytes for a rejected body = %d, want at most 4 MiB", allocated)
			}
		})
	}
}

// repeat returns a reader that repeats a text endlessly.
func repeat(text string) io.Reader { return &repeated{text: text} }

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		copied := copy(p[n:], r.text[r.at:])
		n += copied
		r.at = (r.at + copied) % len(r.text)
	}
	return n, nil
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"clearAll":true,"addResources":[{"kind":"Pod","uid":"c1/a","resourceString":"pods","properties":{"name":"a","x":[1,{"a":null}]}}],"addEdges":[{"SourceUID":"c1/a","DestUID":"c1/b","EdgeType":"t"}]}`)
	f.Add(`{"deleteResources":[{"uid":"c1/a"}],"updateResources":[{"uid":"c2/a"},{}],"x":[[]]}`)
	f.Fuzz(func(t *testing.T, body string) {
		report, _, err := Decode(strings.NewReader(body), "c1", false, false, Limits{ResourceBytes: 200, Properties: 5})
		if err != nil {
			if format := new(FormatError); !errors.As(err, &format) || format.Offset < 0 || format.Offset > int64(len(body)) {
				t.Fatalf("error = %v, want a FormatError with an offset in the body", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, r := range report.Put {
			if seen[r.UID] || !strings.HasPrefix(r.UID, "c1/") {
				t.Errorf("decoded UID = %q, want a unique UID of the cluster", r.UID)
			}
			seen[r.UID] = true
			if search.Text(r.Properties, "kind") == "" || search.Text(r.Properties, "name") == "" || r.Properties.Get(query.HubResource) != nil || r.Properties.Get("cluster") != nil {
				t.Errorf("decoded properties = %s, want kind and name and no reserved properties", r.Properties.AppendJSON(nil))
			}
		}
		for _, uid := range report.Delete {
			if seen[uid] {
				t.Errorf("UID %q is put and deleted, want only one of them", uid)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	report := fleetgen.Cluster(fleetgen.Options{Clusters: 2, PerCluster: 5000}, 1)
	body, err := fleetgen.Sync(report)
	if err != nil {
		b.Fatal(err)
	}
	text := string(body)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	began := processorTime(b)
	for b.Loop() {
		decoded, response, err := Decode(strings.NewReader(text), report.Cluster, false, true, Limits{})
		if err != nil || len(decoded.Put) != len(report.Put) || len(decoded.AddEdges) != len(report.AddEdges) || refusedResources(response) > 0 {
			b.Fatalf("Decode() = %v, %d resources, errors %s, want all resources", err, len(decoded.Put), refusalsOf(response))
		}
	}
	put := float64(len(report.Put) * b.N)
	b.ReportMetric(put/b.Elapsed().Seconds(), "resources/s")
	// The metric excludes other processes, but includes garbage collection.
	b.ReportMetric(put/(processorTime(b)-began).Seconds(), "resources/cpu-s")
	b.ReportMetric(float64(len(text))/float64(len(report.Put)), "bytes/resource")
	b.ReportMetric(float64(len(report.AddEdges))/float64(len(report.Put)), "edges/resource")
}

// processorTime returns the processor time of the process.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
