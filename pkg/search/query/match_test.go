package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// now is the reference time of ages in tests.
var now = time.Date(2025, 11, 1, 12, 0, 0, 0, time.UTC)

func decoded(t testing.TB, object string) Properties {
	t.Helper()
	properties, err := DecodeProperties([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return properties
}

func parsed(t testing.TB, text string) Query {
	t.Helper()
	q, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestMatches(t *testing.T) {
	const pod = `{
		"kind": "Pod", "kind_plural": "pods", "name": "nginx-7", "namespace": "payments", "status": "Running",
		"created": "2025-11-01T06:00:00Z", "startedAt": "2025-09-01T02:00:00+02:00",
		"restarts": 9, "share": 0.5, "huge": 1e300, "port": "8080", "serial": "007", "ready": true,
		"label": {"app": "web", "app.kubernetes.io/name": "Nginx", "odd": "a=b", "number": "10", "quote": "it's \"5%_*\\"},
		"image": ["quay.io/a/nginx:1.2", "busybox"], "mount": [["a", 1], {"b": null}], "empty": {},
		"_hidden": "secret-word", "cluster": "forged"
	}`
	properties := decoded(t, pod)
	for name, test := range map[string]struct {
		yes, no []string
	}{
		"empty query": {yes: []string{"", "*"}},

		// Keywords.
		"two keywords in two properties":   {yes: []string{"nginx payments", "payments 8080 busybox"}, no: []string{"nginx absent"}},
		"keywords without case":            {yes: []string{"NGINX rUNNING"}},
		"keywords in parts of a text":      {yes: []string{"ment", "ginx-"}},
		"keywords in numbers and booleans": {yes: []string{"true", "0.5"}},
		"keywords in maps":                 {yes: []string{"kubernetes.io", `"app=web"`, `"PP=W"`, `"odd=a=b"`, `"d=a=b"`, `"=a="`, `"web"`}, no: []string{`"app=webs"`, `"xapp=web"`}},
		"keywords in lists":                {yes: []string{"busybox", "quay.io/a/NGINX"}},
		"keywords in JSON":                 {yes: []string{`'["a",1]'`, `'{"b":null}'`}},
		"keywords do not join leaves":      {no: []string{`"webapp"`, `"1.2busybox"`}},
		"keyword and name of the cluster":  {yes: []string{"east", "EAST nginx"}},
		"keywords in hidden properties":    {no: []string{"secret-word"}},
		"keywords and property names":      {no: []string{"kind_plural"}},
		"keywords are data":                {yes: []string{`"5%_*\\"`, `it\'s`}, no: []string{"ngin_", `"ngin*7"`, "ngi%"}},

		// Filters.
		"equal":                   {yes: []string{"kind:Pod", "name=nginx-7"}, no: []string{"name:nginx", "name:Nginx-7", "name:NGINX*"}},
		"filters are AND":         {yes: []string{"kind:Pod status:Running"}, no: []string{"kind:Pod status:Failed", "namespace:a namespace:payments"}},
		"values are OR":           {yes: []string{"status:Failed,Running", "restarts:<1,>8"}, no: []string{"status:Failed,Pending"}},
		"several negatives":       {yes: []string{"status!=Failed,Pending"}, no: []string{"status!=Failed,Running", "status!=Running,Failed"}},
		"negatives and positives": {yes: []string{"name:nginx*,!=nginx-8"}, no: []string{"name:nginx*,!=nginx-7", "name:!=nginx-8,absent"}},
		"missing property":        {yes: []string{"absent!=Running", "absent!=*"}, no: []string{"absent:Running", "absent:*", "absent>1", "absent<1", `absent:""`}},
		"empty map":               {yes: []string{"empty!=*"}, no: []string{"empty:*"}},
		"wildcards": {
			yes: []string{"name:nginx-*", "name:*-7", "name:*", "name:n*x*7", "name:*gin*", "name:nginx-7*", "name:**7"},
			no:  []string{"name:nginx-7?", "name:*x*n*", "name:nginx-7*7", "name:*8"},
		},
		"wildcards may not overlap": {no: []string{"status:Runn*nning"}, yes: []string{"status:Runn*ing"}},
		"wildcards of SQL are data": {no: []string{"name:nginx%", "name:nginx-_"}},
		"negated wildcards":         {yes: []string{"name!=redis*"}, no: []string{"name!=nginx*"}},
		"property and case":         {no: []string{"Kind:Pod"}},
		"hidden properties":         {yes: []string{"_hidden:secret-word"}},

		// Kind.
		"kind, lower case":    {yes: []string{"kind:pod", "kind:pOD", "kind:po*", "kind:p*D"}, no: []string{"kind:pods", "kind!=pod"}},
		"kind, upper case":    {no: []string{"kind:POD", "kind:PO*", "kind:*OD"}},
		"only kind is folded": {no: []string{"kind_plural:podS", "status:running"}},

		// Numbers.
		"numbers as numbers":        {yes: []string{"restarts>8", "restarts<10", "restarts>=9", "restarts<=9.0", "restarts>-1", "restarts<1e2"}, no: []string{"restarts>9", "restarts<9", "restarts>10"}},
		"equal numbers":             {yes: []string{"restarts:9.0", "restarts:90e-1", "share:.5,0.50", "restarts!=8"}, no: []string{"restarts!=9.00", "restarts:90"}},
		"strings that are numbers":  {yes: []string{"port>100", "port<9000", "port:8080.0"}, no: []string{"port>9000"}},
		"invalid JSON numbers":      {yes: []string{"serial:007", "serial<1x"}, no: []string{"serial:7", "serial>6", "restarts:09", "restarts:+9"}},
		"texts that are no numbers": {no: []string{"status>1", "status<1", "created>1"}, yes: []string{"status!=1"}},
		"patterns of numbers":       {yes: []string{"restarts:9*", "port:80*"}, no: []string{"restarts:90*"}},
		"numbers beyond float64":    {no: []string{"huge:1e999", "huge>=1e999"}, yes: []string{"huge<2e300"}},
		"booleans as texts":         {yes: []string{"ready:true", "ready!=false"}, no: []string{"ready:1"}},
		"number compared with text": {yes: []string{"restarts<x"}, no: []string{"restarts>x"}},
		"order of texts by bytes":   {yes: []string{"status>R", "status<a", "status<=Running"}, no: []string{"status>a", "status<Running", "status>Running-"}},
		"order without wildcards":   {yes: []string{`status>"R*"`, "status>R*"}},

		// Times.
		"newer than":     {yes: []string{"created:day", "created:week,hour", "created>day", "created!=hour"}, no: []string{"created:hour", "created!=day", "startedAt:month"}},
		"older than":     {yes: []string{"created<hour", "startedAt<month", "startedAt:year"}, no: []string{"created<day", "startedAt>month"}},
		"times as times": {yes: []string{"created>2025-11-01", "created<2025-11-02", "created>=2025-11-01T06:00:00Z", "created<=2025-11-01T07:00:00+01:00", "startedAt:>=2025-09-01", "startedAt<2025-09-01T00:00:01Z"}, no: []string{"created>2025-11-01T06:00:00Z", "created<2025-11-01"}},
		"equal times":    {yes: []string{"created:2025-11-01T06:00:00Z", "created:2025-11-01*"}, no: []string{"created:2025-11-01"}},
		"texts that are no times": {
			no: []string{"status>2020-01-01", "status<day", "status:day", "restarts>2020-01-01"}, yes: []string{"status!=day"},
		},

		// Maps.
		"label":                 {yes: []string{"label:app=web", "label:app=x,app=web", "label!=app=x"}, no: []string{"label:app=we", "label:app=", "label!=app=web", "label:APP=web"}},
		"label, key alone":      {yes: []string{"label:app", "label:app*", "label!=web", "label:odd"}, no: []string{"label:web", "label:ap", "label!=app", "label:odd=a"}},
		"label, wildcards":      {yes: []string{"label:app=*", "label:*=web", "label:a*=w*", "label:app*name=Ngi*", "label:*p*=*eb", "label:*=*=b"}, no: []string{"label:*web", "label:app=*x", "label:app=w*w*"}},
		"label, = in values":    {yes: []string{"label:odd=a=b", "label:odd=*=b"}},
		"label, data":           {yes: []string{`label:quote="it's \"5%_*\\"`, `label:quote=it\'s*`}, no: []string{`label:quote="it's *"`, `label:quote=it_s%`}},
		"label, numbers":        {yes: []string{"label:number=10"}, no: []string{"label:number=10.0", "label:10", "label>5"}},
		"label, order":          {yes: []string{"label>quote=", "label<app=webs"}, no: []string{"label>quotf="}},
		"label key as property": {no: []string{"app:web"}},

		// Lists.
		"list":      {yes: []string{"image:busybox", "image:quay.io/*", "image:x,busybox", "image!=redis"}, no: []string{"image:busy", "image!=busybox", "image!=quay*"}},
		"JSON leaf": {yes: []string{`mount:'["a",1]'`, `mount:*null*`}, no: []string{"mount:a"}},

		// The cluster.
		"cluster": {yes: []string{"cluster:east-1", "cluster:east-*", "cluster!=west", "cluster:a,east-1"}, no: []string{"cluster:forged", "cluster:East-1", "cluster!=east-1", "forged"}},
	} {
		t.Run(name, func(t *testing.T) {
			for want, texts := range map[bool][]string{true: test.yes, false: test.no} {
				for _, text := range texts {
					q := parsed(t, text)
					if got := q.Matches("east-1", properties, now); got != want {
						t.Errorf("Matches(%s) = %t, want %t", text, got, want)
					}
				}
			}
		})
	}
}

// TestAgesCountFromNow checks the boundaries of ages.
func TestAgesCountFromNow(t *testing.T) {
	for age, length := range map[string]time.Duration{
		"hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
	} {
		for _, test := range []struct {
			text  string
			older time.Duration
			want  bool
		}{
			{"created:" + age, -time.Second, true}, {"created:" + age, 0, false}, {"created:" + age, time.Second, false},
			{"created>" + age, -time.Second, true}, {"created>" + age, 0, false}, {"created>=" + age, 0, true},
			{"created<" + age, time.Second, true}, {"created<" + age, 0, false}, {"created<=" + age, 0, true},
			{"created:" + age, -2 * length, true},
		} {
			created := now.Add(-length - test.older).Format(time.RFC3339)
			q := parsed(t, test.text)
			if got := q.Matches("c", decoded(t, `{"created":"`+created+`"}`), now); got != test.want {
				t.Errorf("Matches(%s) of a resource created %s before %s = %t, want %t", test.text, length+test.older, now, got, test.want)
			}
		}
	}
}

// TestKindThatIsAMap checks a kind that is a map. No Kubernetes object has such a kind, but a
// report may contain one.
func TestKindThatIsAMap(t *testing.T) {
	properties := decoded(t, `{"kind":{"App":"Web"}}`)
	for text, want := range map[string]bool{
		"kind:app=web": true, "kind:app": true, "kind:app=w*": true, "kind:App=web": false, "kind:app=x": false,
	} {
		q := parsed(t, text)
		if got := q.Matches("c", properties, now); got != want {
			t.Errorf("Matches(%s) = %t, want %t", text, got, want)
		}
	}
}

// TestStructuredValues checks values in the form that public clients send.
func TestStructuredValues(t *testing.T) {
	for text, want := range map[string]struct {
		op    Op
		parts []string
	}{
		"":            {Equal, []string{""}},
		"a":           {Equal, []string{"a"}},
		"=a":          {Equal, []string{"a"}},
		"==a":         {Equal, []string{"=a"}},
		"!a":          {NotEqual, []string{"a"}},
		"!=a":         {NotEqual, []string{"a"}},
		">3":          {Greater, []string{"3"}},
		">=3":         {GreaterOrEqual, []string{"3"}},
		"<3":          {Less, []string{"3"}},
		"<=3":         {LessOrEqual, []string{"3"}},
		"a*b":         {Equal, []string{"a", "b"}},
		"!=*":         {NotEqual, []string{"", ""}},
		"a***":        {Equal, []string{"a", ""}},
		`a\*b\\c`:     {Equal, []string{`a*b\c`}},
		`a\`:          {Equal, []string{`a\`}},
		">a*":         {Greater, []string{"a*"}},
		"a,b c":       {Equal, []string{"a,b c"}},
		`"a" 'b'`:     {Equal, []string{`"a" 'b'`}},
		"app=web":     {Equal, []string{"app=web"}},
		"é*\xff":      {Equal, []string{"é", "\xff"}},
		"status!=xyz": {Equal, []string{"status!=xyz"}},
	} {
		got := ParseComparison(text)
		if got.Op != want.op || cmp.Diff(want.parts, got.Parts) != "" || got.Text != strings.Join(want.parts, "*") {
			t.Errorf("ParseComparison(%s) = %q %q %q, want %q with parts %q", text, got.Op, got.Text, got.Parts, want.op, want.parts)
		}
	}
}

func TestLiteralComparison(t *testing.T) {
	c := NewComparison("", `>a*\`)
	if c.Op != Equal || c.Wildcard() || !c.MatchesLeaf("name", String, Leaf{Text: `>a*\`}, now) {
		t.Errorf("NewComparison(>a*\\) = %#v, want a literal comparison that holds for its text", c)
	}
	for text, kind := range map[string]string{
		"3": "number", "-0.5e3": "number", "1e999": "text", "0x1": "text", "NaN": "text", " 3": "text", "3 ": "text", "1_0": "text",
		"2025-11-01": "time", "2025-11-01T00:00:00Z": "time", "2025-11-01T00:00:00.5+02:00": "time",
		"2025-11-01T00:00:00,5Z": "text", "2025-02-30": "text", "2025-11-01 00:00:00Z": "text", "2025-1-1": "text",
		"day": "age", "days": "text", "Day": "text", "": "text",
	} {
		for _, c := range []Comparison{NewComparison(Greater, text), NewPattern(Equal, text), ParseComparison(text)} {
			got := fmt.Sprint(c.Number != nil, c.Time != nil, c.Age != 0)
			want := fmt.Sprint(kind == "number", kind == "time", kind == "age")
			if got != want {
				t.Errorf("number, time and age of %s = %s, want %s", text, got, want)
			}
		}
	}
}

// TestComparisonWithoutConstructor checks comparisons that no constructor returns.
func TestComparisonWithoutConstructor(t *testing.T) {
	for _, op := range []Op{"", Equal, NotEqual, Less, GreaterOrEqual, "~"} {
		for _, property := range []Type{String, Map} {
			c := Comparison{Op: op}
			q := Query{Filters: []Filter{{Property: "a", Comparisons: []Comparison{c}}, {Property: "b"}}}
			c.MatchesLeaf("kind", property, Leaf{Key: "a", Text: "b"}, now)
			if err := q.Check(); err == nil {
				t.Errorf("Check() of operator %q without parts = nil, want an error", op)
			}
		}
	}
}

func TestContainsFold(t *testing.T) {
	for _, test := range []struct {
		text, keyword string
		want          bool
	}{
		{"", "", true}, {"a", "", true}, {"", "a", false}, {"NGINX", "ginx", true}, {"nginx", "nginx-", false}, {"aab", "ab", true},
		{"@[", "`{", false}, {"GRÖSSE", "grÖsse", true}, {"GRÖSSE", "grösse", false}, {"\u212a", "k", false},
	} {
		if got := ContainsFold(test.text, test.keyword); got != test.want {
			t.Errorf("ContainsFold(%q, %q) = %t, want %t", test.text, test.keyword, got, test.want)
		}
	}
	text, keyword := strings.Repeat("a", 100)+"B", "ab"
	if allocations := testing.AllocsPerRun(10, func() { ContainsFold(text, keyword) }); allocations != 0 {
		t.Errorf("allocations of ContainsFold() = %v, want 0", allocations)
	}
}

// TestKeywordsInPairs compares keywords in the pairs of a map with the definition.
func TestKeywordsInPairs(t *testing.T) {
	texts := []string{"", "=", "a", "A=", "=b", "a=b", "ab=c", "==", "B==A", "a=b=c", strings.Repeat("=", 100), strings.Repeat("a=", 40) + "b"}
	for _, key := range texts {
		for _, text := range texts {
			properties := Properties{{Name: "label", Type: Map, Leaves: []Leaf{{Key: key, Type: String, Text: text}}}}
			for _, keyword := range texts[1:] {
				q := Query{Keywords: []string{strings.ToLower(keyword)}}
				want := strings.Contains(strings.ToLower(key+"="+text), strings.ToLower(keyword))
				if got := q.Matches("x", properties, now); got != want {
					t.Errorf("match of the keyword %q in %s=%s = %t, want %t", keyword, key, text, got, want)
				}
			}
		}
	}
}

// TestCraftedPairs matches a keyword of which each "=" could be that of a pair. If the time grows with the product of
// the number of "=" and the length of the texts, the test exceeds its timeout.
func TestCraftedPairs(t *testing.T) {
	long := strings.Repeat("=", 32<<10-1)
	properties := Properties{{Name: "label", Type: Map, Leaves: []Leaf{{Key: long, Type: String, Text: long}}}}
	q := keywords(long + "x")
	for range 1000 {
		if q.Matches("x", properties, now) {
			t.Fatal("match of a keyword that no value contains = true, want false")
		}
	}
}

// sample is a reported resource.
const sample = `{"apiversion":"v1","cluster":"ignored","container":["nginx","istio-proxy"],"created":"2025-10-14T03:22:11Z","hostIP":"10.3.1.7","image":["registry.example.com/web/nginx:1.25.3","registry.example.com/istio/proxyv2:1.20"],"kind":"Pod","kind_plural":"pods","label":{"app.kubernetes.io/instance":"nginx-ingress-payments","app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"nginx-ingress","app.kubernetes.io/version":"3.12.7","env":"prod","team":"team-07"},"name":"nginx-ingress-7c9d8f6b54-x2x9k","namespace":"payments","podIP":"10.130.2.41","restarts":3,"startedAt":"2025-10-14T03:22:31Z","status":"Running"}`

func BenchmarkMatches(b *testing.B) {
	properties := decoded(b, sample)
	for name, text := range map[string]string{
		"filters":  "kind:Pod namespace:a,payments status!=Completed restarts>1 created:month label:team=team-07 name:nginx-*",
		"kind":     "kind:pod",
		"label":    "label:team=team-08",
		"pattern":  "label:*name=*gress",
		"keyword":  "running",
		"keywords": "absent nginx",
	} {
		q := parsed(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q.Matches("cluster-001", properties, now)
			}
		})
	}
}
