package fieldpath

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

var pod = map[string]any{
	"apiVersion": "v1", "kind": "Pod",
	"spec": map[string]any{"replicas": int64(3), "containers": []any{
		map[string]any{"name": "web", "image": "a", "ports": []any{int64(80)}},
		map[string]any{"name": "sidecar", "image": "b"},
	}},
	"status": map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
}

func union(times int, names ...string) string {
	var path strings.Builder
	for _, name := range names {
		path.WriteString("[" + strings.TrimSuffix(strings.Repeat("'"+name+"',", times), ",") + "]")
	}
	return path.String()
}

func TestJSONPathIsBounded(t *testing.T) {
	for path, want := range map[string]string{
		".status.phase": "", "{.status.phase}": "", "$.status.phase": "",
		`.status.conditions[?(@.type=="Ready")].status`: "",
		".spec.containers[*]['name','image']":           "",
		".spec.containers[0:1].name":                    "",
		".status..status":                               "",
		union(150, "status", "more", "x"):               "too expensive",
		"..a..a..a":                                     "too expensive",
		".spec.containers[?(@" + union(300, "ports", "x") + `=="Ready")].status`: "too expensive",
		"{range .spec.containers[*]}{.name}{end}":                                "exactly one path",
		"{.a}{.b}":                              "exactly one path",
		"text{.a}":                              "unrecognized",
		".a[1:3:9223372036854775807]":           "out of range",
		".a[":                                   "unterminated",
		strings.Repeat(".a", bounded.MaxLength): "no more than",
	} {
		_, err := ParseJSONPath(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseJSONPath(%.60s) = %v, want an error with %q", path, err, want)
		}
	}
}

func TestJSONPathFinds(t *testing.T) {
	for path, want := range map[string]string{
		".status.phase":                            "[Running]",
		".spec.containers[*].name":                 "[web sidecar]",
		`.spec.containers[?(@.name=="web")].image`: "[a]",
		".none": "[]",
	} {
		parsed, err := ParseJSONPath(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parsed.Find(bounded.NewBudget(), pod, bounded.ExtentOf(pod))
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("Find(%s) = %v, %v, want %s", path, got, err, want)
		}
	}
}

// A path is rejected for an object in which it selects too many values.
func TestJSONPathDependsOnExtent(t *testing.T) {
	object := map[string]any{"list": make([]any, 250_000)}
	parsed, err := ParseJSONPath(".list[*]")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parsed.Find(bounded.NewBudget(), object, bounded.ExtentOf(object)); !errors.Is(err, bounded.ErrTooExpensive) {
		t.Errorf("Find() = %v, want bounded.ErrTooExpensive", err)
	}
}

func TestJQIsBounded(t *testing.T) {
	for expression, want := range map[string]bool{
		".spec.replicas": true, `.metadata.annotations["a/b"]`: true, ".spec.containers[0].image": true, ".spec.containers[].image": true, ".spec?": true,
		`.spec.containers[] | select(.name == "web") | .image`:                                   true,
		`.spec.containers[] | select((.name == "web" or "b" == .image) and .x != null) | .image`: true,
		`(.spec | .containers)[0].ports[-1]`:                                                     true,
		`."spec"."replicas"`:                                                                     true,
		// Expressions without a static bound, or that select a field more than once.
		`"a" * 1000000000`: false, ".. | .a": false, ".a, .b": false, "recurse": false, "range(1000000000)": false, "[limit(5; repeat(.))]": false,
		"reduce range(10) as $i (.; .)": false, "def f: f; f": false, ".a[1:2]": false, ".a[.b]": false, `.["\(.a)"]`: false, "paths": false, "getpath([\"a\"])": false,
		"select(.a)": false, "select(.a == .b)": false, "select(.a[] == 1)": false, `select(.a | test("(a*)*"))`: false, "select(.a == (1, 2))": false, "input": false, "env": false, "$ENV": false, "if .a then .b else .c end": false,
		"try .a": false, ".a as $x | $x": false, ".a // .b": false, ".a += 1": false, "{a: .b}": false, "[.a]": false, "@base64": false, "label $f | .a": false, "": false,
		strings.Repeat("(", 2000): false,
	} {
		if _, err := ParseJQ(expression); (err == nil) != want {
			t.Errorf("ParseJQ(%.60s) = %v, want success %v", expression, err, want)
		}
	}
}

func TestJQSelects(t *testing.T) {
	for expression, want := range map[string]string{
		".spec.replicas": "[[spec replicas]]",
		`.spec.containers[] | select(.name == "sidecar") | .image`:       "[[spec containers 1 image]]",
		".spec.containers[].name":                                        "[[spec containers 0 name] [spec containers 1 name]]",
		`.spec.containers[] | select(.ports[0] == 80 and .name != null)`: "[[spec containers 0]]",
	} {
		query, err := ParseJQ(expression)
		if err != nil {
			t.Fatal(err)
		}
		got, err := query.Paths(t.Context(), bounded.NewBudget(), pod, bounded.ExtentOf(pod))
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("Paths(%s) = %v, %v, want %s", expression, got, err, want)
		}
	}
}

func TestFieldsAreTranslated(t *testing.T) {
	for path, want := range map[string]string{
		".spec.replicas": "[[spec replicas]]", "{.spec['replicas']}": "[[spec replicas]]", "$.spec.containers[0].image": "[[spec containers 0 image]]",
		".spec.containers[*].name":                 "[[spec containers 0 name] [spec containers 1 name]]",
		`.spec.containers[?(@.name=="web")].image`: "[[spec containers 0 image]]",
	} {
		query, err := ParseFields(path)
		if err != nil {
			t.Errorf("ParseFields(%s) = %v, want no error", path, err)
			continue
		}
		got, err := query.Paths(t.Context(), bounded.NewBudget(), pod, bounded.ExtentOf(pod))
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("Paths(%s) = %v, %v, want %s", path, got, err, want)
		}
	}
	for _, path := range []string{"..name", ".a[?(@.b>1)]", ".a[0:2]", "{.a", ".", ""} {
		if _, err := ParseFields(path); err == nil {
			t.Errorf("ParseFields(%s) = nil, want an error", path)
		}
	}
}

func FuzzJSONPath(f *testing.F) {
	for _, seed := range []string{".status.phase", `{.a[?(@.type=="Ready")]['b','c']}`, "..a", ".a[1:2:3]", "['a'][*]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if parsed, err := ParseJSONPath(text); err == nil {
			_, _ = parsed.Find(bounded.NewBudget(), pod, bounded.ExtentOf(pod))
		}
	})
}

// FuzzJQ checks that no expression selects a field more than once.
func FuzzJQ(f *testing.F) {
	for _, seed := range []string{".spec.replicas", `.spec.containers[] | select(.name == "web") | .image`, `.a["b"]?`, `."a"[-1]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := ParseJQ(text)
		if err != nil {
			return
		}
		paths, err := query.Paths(t.Context(), bounded.NewBudget(), pod, bounded.ExtentOf(pod))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, path := range paths {
			if key := fmt.Sprintf("%#v", path); seen[key] {
				t.Errorf("Paths(%s) contains %v more than once, want unique paths", text, path)
			} else {
				seen[key] = true
			}
		}
	})
}

var quota = map[string]any{
	"metadata": map[string]any{"annotations": map[string]any{"example.com/last-run": "a", "with space": "b", "a,b": "c", "x]y": "d"}},
	"used":     map[string]any{"requests.cpu": "4", "requests": map[string]any{"cpu": "wrong"}, "pods": "3", "*": "star"},
	"list":     []any{map[string]any{"app.properties": "x", "v": "first"}, map[string]any{"app.properties": "y", "v": "second"}},
}

// TestSpellings checks that each kind of path takes both spellings of a field whose name contains special characters.
func TestSpellings(t *testing.T) {
	for name, test := range map[string]struct{ paths, jq, want string }{
		"dots":             {paths: `.used.requests\.cpu`, want: "[[used requests.cpu]] [4]"},
		"brackets":         {paths: `.used['requests.cpu']`, want: "[[used requests.cpu]] [4]"},
		"double quotes":    {paths: `.used["requests.cpu"]`, want: "[[used requests.cpu]] [4]"},
		"escapes in both":  {paths: `.used['requests\.cpu']`, jq: `.used['requests.cpu']`, want: "[[used requests.cpu]] [4]"},
		"slash":            {paths: `.metadata.annotations.example\.com/last-run`, want: "[[metadata annotations example.com/last-run]] [a]"},
		"slash, brackets":  {paths: `.metadata['annotations']['example.com/last-run']`, want: "[[metadata annotations example.com/last-run]] [a]"},
		"space":            {paths: `.metadata.annotations.with\ space`, want: "[[metadata annotations with space]] [b]"},
		"space, brackets":  {paths: `.metadata.annotations[ 'with space' ]`, want: "[[metadata annotations with space]] [b]"},
		"comma, brackets":  {paths: `.metadata.annotations['a,b']`, want: "[[metadata annotations a,b]] [c]"},
		"bracket in name":  {paths: `.metadata.annotations['x]y']`, want: "[[metadata annotations x]y]] [d]"},
		"star in brackets": {paths: `.used['*']`, want: "[[used *]] [star]"},
		"root":             {paths: `$['used'].pods`, jq: `.['used'].pods`, want: "[[used pods]] [3]"},
		"filter":           {paths: `.list[?(@['app.properties']=="y")].v`, jq: `.list[] | select(.['app.properties'] == "y") | .v`, want: "[[list 1 v]] [second]"},
		"filter, dots":     {paths: `.list[?(@.app\.properties=='y')].v`, jq: `.list[] | select(.app\.properties == "y") | .v`, want: "[[list 1 v]] [second]"},
		"from the end":     {paths: `.list[-1].v`, want: "[[list 1 v]] [second]"},
	} {
		t.Run(name, func(t *testing.T) {
			fields, err := ParseFields(test.paths)
			if err != nil {
				t.Fatal(err)
			}
			text := test.jq
			if text == "" {
				text = test.paths
			}
			query, err := ParseJQ(text)
			if err != nil {
				t.Fatal(err)
			}
			path, err := ParseJSONPath(test.paths)
			if err != nil {
				t.Fatal(err)
			}
			values, err := path.Find(bounded.NewBudget(), quota, bounded.ExtentOf(quota))
			if err != nil {
				t.Fatal(err)
			}
			for kind, parsed := range map[string]*JQ{"ParseFields": fields, "ParseJQ": query} {
				paths, err := parsed.Paths(t.Context(), bounded.NewBudget(), quota, bounded.ExtentOf(quota))
				if got := fmt.Sprint(paths, " ", values); err != nil || got != test.want {
					t.Errorf("%s(%s) selects %s, %v, want %s", kind, test.paths, got, err, test.want)
				}
			}
		})
	}
	union, err := ParseJSONPath(`.used['requests.cpu', 'pods']`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := union.Find(bounded.NewBudget(), quota, bounded.ExtentOf(quota)); err != nil || fmt.Sprint(got) != "[4 3]" {
		t.Errorf("Find(union) = %v, %v, want [4 3]", got, err)
	}
	for _, path := range []string{`.a['']`, `.a['b\\c']`} {
		if _, err := ParseJSONPath(path); err == nil {
			t.Errorf("ParseJSONPath(%s) = nil, want an error", path)
		}
	}
}

// TestCELSpelling checks that only fields outside of string literals are spelled as CEL does.
func TestCELSpelling(t *testing.T) {
	for text, want := range map[string]string{
		`object.data.requests\.cpu == "a.b\\.c"`:       "object.data.`requests.cpu` == \"a.b\\\\.c\"",
		`has(object.labels.a\.b/c)`:                    "has(object.labels.`a.b/c`)",
		`object.x.matches(r"\") && object.a\:b == '1'`: "object.x.matches(r\"\\\") && object[\"a:b\"] == '1'",
		`object.x in ['a.b', "c"] && """x.a\\.b"""==x`: `object.x in ['a.b', "c"] && """x.a\\.b"""==x`,
		`object.data['requests.cpu']`:                  `object.data['requests.cpu']`,
	} {
		if got := CEL(text); got != want {
			t.Errorf("CEL(%s) = %s, want %s", text, got, want)
		}
	}
}
