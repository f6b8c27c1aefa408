package query

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filter returns a filter with literal values.
func filter(property string, op Op, texts ...string) Filter {
	f := Filter{Property: property}
	for _, text := range texts {
		f.Comparisons = append(f.Comparisons, NewComparison(op, text))
	}
	return f
}

func filterOf(property string, comparisons ...Comparison) Filter {
	return Filter{Property: property, Comparisons: comparisons}
}

func filters(all ...Filter) Query           { return Query{Filters: all} }
func keywords(all ...string) Query          { return Query{Keywords: all} }
func pattern(op Op, text string) Comparison { return NewPattern(op, text) }

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want Query
	}{
		"empty text": {"", Query{}},
		"only space": {" \t\n\u00a0", Query{}},
		"the form of the documentation": {
			`kind:Pod namespace:a,b status!=Running restarts>3 created:day label:app=web name:nginx-* nginx "two words"`,
			Query{
				Keywords: []string{"nginx", "two words"},
				Filters: []Filter{
					filter("kind", Equal, "Pod"), filter("namespace", Equal, "a", "b"), filter("status", NotEqual, "Running"),
					filter("restarts", Greater, "3"), filter("created", Equal, "day"), filter("label", Equal, "app=web"),
					filterOf("name", pattern(Equal, "nginx-*")),
				},
			},
		},
		"equals sign":              {"kind=Pod", filters(filter("kind", Equal, "Pod"))},
		"not with a colon":         {"status!:Running,Completed", filters(filter("status", NotEqual, "Running", "Completed"))},
		"all operators":            {"a<1 a<=1 a>1 a>=1 a!=1 a=1", filters(filter("a", Less, "1"), filter("a", LessOrEqual, "1"), filter("a", Greater, "1"), filter("a", GreaterOrEqual, "1"), filter("a", NotEqual, "1"), filter("a", Equal, "1"))},
		"operators of values":      {"status:!=Running,!Completed,Error", filters(filterOf("status", NewComparison(NotEqual, "Running"), NewComparison(NotEqual, "Completed"), NewComparison(Equal, "Error")))},
		"operator after colon":     {"restarts:>3,<=1,=2", filters(filterOf("restarts", NewComparison(Greater, "3"), NewComparison(LessOrEqual, "1"), NewComparison(Equal, "2")))},
		"labels":                   {"label:app=web,env=prod", filters(filter("label", Equal, "app=web", "env=prod"))},
		"label, not":               {"label!=app=web", filters(filter("label", NotEqual, "app=web"))},
		"label, equals sign":       {"label=app=web", filters(filter("label", Equal, "app=web"))},
		"colons in values":         {"image:quay.io/x:1.2 podIP:::1", filters(filter("image", Equal, "quay.io/x:1.2"), filter("podIP", Equal, "::1"))},
		"property of a domain":     {"_a.b/c-d1:x", filters(filter("_a.b/c-d1", Equal, "x"))},
		"one property twice":       {"a:1 a:2", filters(filter("a", Equal, "1"), filter("a", Equal, "2"))},
		"wildcards in a row":       {"name:a**b", filters(filterOf("name", pattern(Equal, "a*b")))},
		"only a wildcard":          {"name:*", filters(filterOf("name", Comparison{Op: Equal, Text: "*", Parts: []string{"", ""}}))},
		"quotes in a value":        {`name:"a,b" status:'x y'`, filters(filter("name", Equal, "a,b"), filter("status", Equal, "x y"))},
		"quotes inside a value":    {`label:app="my web",env='a,b'`, filters(filter("label", Equal, "app=my web", "env=a,b"))},
		"quotes and wildcards":     {`name:"a*"*`, filters(filterOf("name", Comparison{Op: Equal, Text: "a**", Parts: []string{"a*", ""}}))},
		"quoted operator":          {`status:"!=x" status!=">"`, filters(filter("status", Equal, "!=x"), filter("status", NotEqual, ">"))},
		"escapes in quotes":        {`name:"a\"b\\c\d"`, filters(filter("name", Equal, `a"b\c\d`))},
		"single quotes":            {`name:'a"b\'`, filters(filter("name", Equal, `a"b\`))},
		"backslashes":              {`name:a\,b\ c\*\"\é`, filters(filter("name", Equal, `a,b c*"é`))},
		"backslash in an operator": {`status:\>x`, filters(filter("status", Equal, ">x"))},
		"empty value":              {`status:"" status!=''`, filters(filter("status", Equal, ""), filter("status", NotEqual, ""))},
		"data of SQL":              {`name:a%_\'`, filters(filter("name", Equal, "a%_'"))},
		"Unicode":                  {"name:größe größe", Query{Keywords: []string{"größe"}, Filters: []Filter{filter("name", Equal, "größe")}}},
		"keywords":                 {"nginx  -x !y z! 10.0.0.1:8080 a,b", keywords("nginx", "-x", "!y", "z!", "10.0.0.1:8080", "a,b")},
		"quoted keyword":           {`"kind:Pod" kind\:Pod "kind":Pod`, keywords("kind:Pod", "kind:Pod", "kind:Pod")},
		"wildcards of keywords":    {`nginx* *x* **y * "*"z`, keywords("nginx", "x", "y", "*z")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("Parse(%s) (-want +got):\n%s", test.text, diff)
			}
			if err := got.Check(); err != nil {
				t.Errorf("Check() of the parsed query = %v, want nil", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text       string
		position   int
		message    string
		suggestion string
	}{
		"no value":                   {"kind:", 5, "value is missing after kind:", ""},
		"no value after an operator": {"restarts:>", 10, "value is missing after restarts:>", ""},
		"no value before a comma":    {"a:,b", 2, "value is missing", "a:b"},
		"no value between commas":    {"a:b,,c", 4, "value is missing", "a:b,c"},
		"no value after a comma":     {"a:b,", 4, "value is missing", ""},
		"space after a comma":        {"a:b, c", 4, "no space after a:b,", "a:b,c"},
		"space before a comma":       {"a:b ,c", 4, "no space around a comma", "a:b,c"},
		"comma at the beginning":     {",c", 0, "comma without a value", ""},
		"spaces around the operator": {"x kind : Pod", 7, "no space around the operator :", "kind:Pod"},
		"space before the operator":  {"kind :Pod", 5, "no space around the operator :", "kind:Pod"},
		"space after the operator":   {"kind: Pod", 5, "no space after kind:", "kind:Pod"},
		"space, then another filter": {"kind: name:a", 5, "value is missing", ""},
		"spaces around >":            {"restarts > 3", 9, "no space around the operator >", "restarts>3"},
		"spaces around ==":           {"kind == Pod", 5, "unknown operator ==", "kind=Pod"},
		"no property":                {"<none>", 0, "property is missing before the operator <", `"<none>"`},
		"==":                         {"kind==Pod x", 4, "unknown operator ==", "kind=Pod"},
		"=>":                         {"restarts=>3", 8, "unknown operator =>", "restarts>=3"},
		"=> after a colon":           {"restarts:=>3", 9, "unknown operator =>", "restarts:>=3"},
		"=<":                         {"restarts=<3", 8, "unknown operator =<", "restarts<=3"},
		"<>":                         {"status<>Running", 6, "unknown operator <>", "status!=Running"},
		"=!":                         {"status=!Running", 6, "unknown operator =!", "status!=Running"},
		"nonsense":                   {"a<=>b", 1, "unknown operator <=>", ""},
		"operator in a list":         {"restarts>=3,<1", 12, "follow a colon", "restarts:>=3,<1"},
		"two operators":              {"status!:=x", 8, "second operator =", ""},
		"double quote not closed":    {`name:"a`, 5, `quote " is not closed`, ""},
		"single quote not closed":    {`x it's`, 4, "quote ' is not closed", ""},
		"quote closed by an escape":  {`"a\"`, 0, `quote " is not closed`, ""},
		"backslash at the end":       {`name:a\`, 6, "missing after the backslash", ""},
		"empty keyword":              {`x ""`, 2, "keyword is empty", ""},
		"wildcard inside a keyword":  {"x ng*x", 4, "a wildcard in the middle", "name:ng*x"},
		"not UTF-8":                  {"name:a\xff", 6, "must be UTF-8", ""},
		"NUL":                        {"name:a\x00", 6, "NUL", ""},
		"too long":                   {strings.Repeat("a", MaxLength+1), MaxLength, "more than 65536 bytes", ""},
		"too many keywords":          {strings.Repeat("a ", MaxTerms+1), 2 * MaxTerms, "more than 1000 keywords and values", ""},
		"too many values of one":     {"a:b" + strings.Repeat(",b", MaxTerms), 0, "more than 1000 keywords and values", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.text)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("Parse() = %v, want a SyntaxError", err)
			}
			if syntax.Position != test.position || !strings.Contains(syntax.Message, test.message) || syntax.Suggestion != test.suggestion {
				t.Errorf("Parse() = %#v, want position %d, message %q and suggestion %q", syntax, test.position, test.message, test.suggestion)
			}
			if message := err.Error(); !strings.Contains(message, fmt.Sprint(test.position)) ||
				!strings.Contains(message, test.message) || !strings.Contains(message, test.suggestion) {
				t.Errorf("Error() = %s, want position, message and suggestion", message)
			}
			if test.suggestion != "" {
				if _, err := Parse(test.suggestion); err != nil {
					t.Errorf("Parse() of the suggestion = %v, want nil", err)
				}
			}
		})
	}
}

func TestParseAtTheLimits(t *testing.T) {
	q, err := Parse("a:b" + strings.Repeat(",b", MaxTerms-1))
	if err != nil || len(q.Filters[0].Comparisons) != MaxTerms {
		t.Errorf("Parse() of %d values = %v, want all values", MaxTerms, err)
	}
	if _, err := Parse(strings.Repeat("a", MaxLength)); err != nil {
		t.Errorf("Parse() of the maximum length = %v, want nil", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "kind:Pod namespace:a,b status!=Running restarts>3 created:day label:app=web nginx*",
		`name:"a\"b",'c d' "x y" a\ b`, "restarts:>3,!=5,!x", "a==b", "kind : Pod", "a:b, c", `"`, `a:\`, "*", "a**b*", "!=a", "!a", "a!:b",
		"created>2024-05-01 created<2024-05-01T10:00:00+02:00 n:1e3", "\xff", "\x00", "a:\u2003b", "größe:ü", "<none>", "a:b*\"c\"*'d'",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("Parse() = %v, want a SyntaxError", err)
			}
			if syntax.Position < 0 || syntax.Position > len(text) {
				t.Fatalf("position = %d of %d bytes, want a position in the text", syntax.Position, len(text))
			}
			return
		}
		if err := q.Check(); err != nil {
			t.Fatalf("Check() of the parsed query = %v, want nil", err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	const text = `kind:Pod namespace:a,b status!=Running restarts>3 created:day label:app=web name:nginx-* nginx "two words"`
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
