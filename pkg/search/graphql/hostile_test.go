package graphql_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// hostileDocuments returns documents and variables with the maximum cost of one request.
func hostileDocuments() map[string][2]string {
	const most = 1<<20 - 1024
	fill := func(begin, repeated, end string) string {
		return begin + strings.Repeat(repeated, max(0, most-len(begin)-len(end))/len(repeated)) + end
	}
	inputs := `[` + strings.Repeat(`{keywords:["a","b"],limit:-1},`, 100) + `]`
	aliases := func(n int, field string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, " s%d:%s", i, field)
		}
		return b.String()
	}
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString("query{...f0}")
		for i := range n {
			fmt.Fprintf(&b, " fragment f%d on Query{...f%d ...f%d}", i, i+1, i+1)
		}
		fmt.Fprintf(&b, " fragment f%d on Query{searchSchema}", n)
		return b.String()
	}
	nested := func(n int) string {
		return "{__schema{types{" + strings.Repeat("fields{type{", n) + "name" + strings.Repeat("}}", n) + "}}}"
	}
	return map[string][2]string{
		"aliases":                {"{" + aliases(10_000, "searchSchema") + "}", ""},
		"aliases of searches":    {"{" + aliases(600, "search(input:"+inputs+"){count}")[:most] + "}", ""},
		"aliases by variable":    {"query($i:[SearchInput]){" + aliases(900, "search(input:$i){count}") + "}", `{"i":` + strings.ReplaceAll(strings.Repeat(`,{"keywords":["a","b"]}`, 100), ",{", ",{")[1:]},
		"the same field":         {"{" + strings.Repeat("searchSchema ", 60_000) + "}", ""},
		"overlapping fields":     {"{" + strings.Repeat("search(input:[]){count} ", 900) + "}", ""},
		"fragments that double":  {chain(40), ""},
		"fragments that recur":   {"query{...a} fragment a on Query{...b} fragment b on Query{...a}", ""},
		"many fragments":         {fill("{searchSchema}", " fragment f on Query{searchSchema}", ""), ""},
		"deep selections":        {fill("", "{a", ""), ""},
		"deep lists":             {fill("{search(input:", "[", ""), ""},
		"deep objects":           {fill("{search(input:", "{a:", ""), ""},
		"deep types":             {fill("query($a:", "[", ""), ""},
		"comments":               {fill("", "#\n", "{searchSchema}"), ""},
		"commas":                 {fill("", ",", "{searchSchema}"), ""},
		"directives":             {fill("{searchSchema ", "@include(if:true)", "}"), ""},
		"unknown directives":     {fill("{searchSchema ", "@a", "}"), ""},
		"a string":               {fill(`{searchComplete(property:"`, "a", `")}`), ""},
		"a string of escapes":    {fill(`{searchComplete(property:"`, `\u0000`, `")}`), ""},
		"a block of indentation": {fill(`{searchComplete(property:"""`, "\n ", `""")}`), ""},
		"a name":                 {fill("{", "a", "}"), ""},
		"unknown fields":         {"{" + aliases(60_000, "x") + "}", ""},
		"operations":             {fill("", "query q{searchSchema} ", ""), ""},
		"variables":              {fill("query(", "$a:Int=1 ", "){searchSchema}"), ""},
		"variables of JSON":      {"query($i:[SearchInput]){search(input:$i){count}}", `{"i":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}"},
		"values":                 {"query($i:[SearchInput]){search(input:$i){count}}", `{"i":[{"filters":[{"property":"name","values":[` + strings.Repeat(`"*a*",`, 999) + `"*a*"]}]}]}`},
		"introspection":          {nested(8), ""},
		"introspection at most":  {nested(3), ""},
		"arguments":              {fill("{searchComplete(", `property:"a" `, ")}"), ""},
		"a number":               {fill("{searchComplete(limit:", "9", ")}"), ""},
	}
}

func (s *server) hostile(t testing.TB, document [2]string) {
	body := map[string]any{"query": document[0]}
	if document[1] != "" && json.Valid([]byte(document[1])) {
		body["variables"] = json.RawMessage(document[1])
	}
	request, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	code, answer := s.post("admin", "application/json", request)
	if code >= http.StatusInternalServerError || len(answer) > 1<<20 {
		t.Errorf("status = %d, %d bytes, want no server error and at most 1 MiB: %.300s", code, len(answer), answer)
	}
}

// TestHostileDocuments checks that the server executes or rejects each document without failing.
// BenchmarkHostileDocuments measures the time.
func TestHostileDocuments(t *testing.T) {
	s := serve(t)
	s.report("east", nil, `{"uid":"east/1","kind":"Pod","name":"pod-a"}`)
	for name, document := range hostileDocuments() {
		t.Run(name, func(t *testing.T) { s.hostile(t, document) })
	}
}

func BenchmarkHostileDocuments(b *testing.B) {
	s := serve(b)
	s.report("east", nil, `{"uid":"east/1","kind":"Pod","name":"pod-a"}`)
	for name, document := range hostileDocuments() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.hostile(b, document)
			}
		})
	}
}

// FuzzDocument searches for documents that make the server fail.
func FuzzDocument(f *testing.F) {
	s := serve(f)
	s.report("east", nil, `{"uid":"east/1","kind":"Pod","name":"pod-a"}`)
	for _, document := range hostileDocuments() {
		if len(document[0]) < 4096 {
			f.Add(document[0], document[1])
		}
	}
	f.Add(`query q($i:[SearchInput]=[{keywords:["a"]}]){search(input:$i){count items related{kind count items}}}`, `{"i":null}`)
	f.Add(`{messages{id kind} searchComplete(property:"kind" query:{filters:[{property:"name" values:["*"]}]} limit:2) searchSchema}`, `{}`)
	f.Add("subscription{watch{uid}}", "")
	f.Fuzz(func(t *testing.T, query, variables string) {
		each := *s
		each.t = t
		each.hostile(t, [2]string{query, variables})
	})
}
