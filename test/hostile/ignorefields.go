package hostile

import (
	"fmt"
	"strconv"
	"strings"
)

// ignored returns a ManifestWork with a manifest that is applied without the fields that the
// expressions select. The object exists, so that the agent evaluates the expressions.
func ignored(g *Gen, of string, expressions ...string) Input {
	return configured(g, fields{"updateStrategy": fields{"type": "ServerSideApply", "serverSideApply": fields{
		"force": true,
		"ignoreFields": []any{fields{
			"condition": pick(g, "OnSpokePresent", "OnSpokeChange"), of: expressions,
		}},
	}}})
}

// feedback returns a ManifestWork that reports the values at JSON paths.
func feedback(g *Gen, paths ...string) Input {
	var rules []any
	for i, path := range paths {
		rules = append(rules, fields{"name": "value" + strconv.Itoa(i), "path": path})
	}
	return configured(g, fields{"feedbackRules": []any{fields{"type": "JSONPaths", "jsonPaths": rules}}}, "StatusFeedbackSynced")
}

func jqClasses() []Class {
	expression := func(name string, generate func(*Gen) string) Class {
		return Class{"jq", name, func(g *Gen) Input {
			return ignored(g, "jqPathExpressions", within(expressionLength, 1, func(int) string { return generate(g) }))
		}}
	}
	// An expression must be a path, so computations are in a condition or an index.
	computed := func(g *Gen, value string) string {
		return fill(pick(g, ".data | select(% | length > 0)", ".data[% | tostring]", "select(% == 1)", "first(select(% != null))", ".data | map(select(% == .))"), "("+value+")")
	}
	number := func(g *Gen) string {
		return pick(g, "1e9", "1e18", "1e308", "9007199254740993", strconv.Itoa(g.upTo(10, 1_000_000_000)))
	}
	return []Class{
		expression("string repetition", func(g *Gen) string {
			n := g.upTo(10, 1_000_000_000)
			return computed(g, pick(g, fmt.Sprintf(`"a" * %d`, n), fmt.Sprintf(`("a" * 30000) * %d`, n/30000+1), fmt.Sprintf(`"%s" * %d`, strings.Repeat("a", 1000), n/1000+1), `"a" * `+number(g), `[limit(`+strconv.Itoa(n)+`; repeat("a"))] | add`))
		}),
		expression("ranges", func(g *Gen) string {
			return computed(g, fill(pick(g, "[range(%)]", "[range(0; %; 1e-9)]", "reduce range(%) as $i (0; . + $i)", "[limit(%; repeat(1))]", "last(range(%))", "[range(%)] | sort", "[range(%)] | tostring", "[foreach range(%) as $i ([]; . + [$i])]", "[range(%)] | combinations", "first(range(%) | select(. < 0))"), number(g)))
		}),
		expression("recursion", func(g *Gen) string {
			return pick(g, "recurse", "..", "recurse(.)", "recurse(.; true)", "[recurse(. ; . < 1e9)]", ".. | .. | .. | ..", "def f: f; f", "def f: .data | f; f", "def f(g): f(g | g); f(.)", "def f($a): f($a + [$a]); f([])", "repeat(.)", "while(true; .)", "until(false; .)",
				"walk(walk(walk(.)))", "env", "$ENV", "input", "[inputs]", "label $out | repeat(., break $out)", "limit(1e9; recurse(.data?))", strings.Repeat("def f: ", g.upTo(1, 300))+"."+strings.Repeat("; f", g.upTo(1, 300)))
		}),
		expression("products of alternatives", func(g *Gen) string {
			n, part := g.upTo(1, 400), pick(g, "(.,.)", "(.a,.b)", "(.data,.metadata)", "..", ".[]?", "recurse", "(.data?,.)")
			return within(expressionLength, n, func(n int) string { return each(n, " | ", func(int) string { return part }) })
		}),
		expression("growing values", func(g *Gen) string {
			n := strconv.Itoa(g.upTo(1, 60))
			return computed(g, fill(pick(g, "reduce range(%) as $i (\"a\"; . + .)", "reduce range(%) as $i ([1]; . + .)", "reduce range(%) as $i ([1]; [., .])", "reduce range(%) as $i (\"a\"; \"\\(.)\\(.)\")", "reduce range(%) as $i (10; . * .)",
				"reduce range(%) as $i ({}; {a: ., b: .}) | tojson", "reduce range(%) as $i (\"a\"; @base64)", "reduce range(%) as $i (\"\\\"\"; tojson)", "reduce range(%) as $i (\"a\"; gsub(\"a\"; \"aa\"))", "reduce range(%) as $i ([1]; flatten + [.])", "[range(%)] | [combinations(%)]", "reduce range(%) as $i ([1]; . as $x | map($x))", "reduce range(%) as $i (\"[]\"; \"[\\(.)]\") | fromjson"), n))
		}),
		expression("huge numbers", func(g *Gen) string {
			digits := strings.Repeat("9", g.upTo(10, 3900))
			return pick(g, digits+" as $n | .data", ".["+digits+"]", ".data | select(. == "+digits+")", "select("+digits+" * "+"9 > 1)", ".[:"+digits+"]", ".data.n | select(. < 1e"+digits[:min(len(digits), 300)]+")", "select("+digits[:min(len(digits), 1900)]+" % 7 == 1)", "select(pow(10; "+digits[:min(9, len(digits))]+") > 1)")
		}),
		expression("arrays that are far too long", func(g *Gen) string {
			return computed(g, fill(pick(g, "null | setpath([%]; 1)", "[] | .[%] = 1", "[null] | .[%:] = [1]", "[1] * %", "[range(100)] | .[-%]", "null | [limit(%; repeat(null))]", "[splits(\"\")] | .[%]", "[.[]?] | transpose | .[%]"), strconv.Itoa(g.upTo(100, 536_870_911))))
		}),
		expression("regular expressions", func(g *Gen) string {
			pattern := strconv.Quote(regex(g))
			return computed(g, fill(pick(g, ".data.k | test(%)", ".data.k | [scan(%)]", ".data.k | gsub(%; \"aaaaaaaaaa\")", ".data.k | [match(%; \"g\")]", ".data.k | [splits(%)]", ".data.k | capture(%)", ".data | [.[] | select(test(%))]", ".data as $d | [$d[] | test($d.p)]"), pattern))
		}),
		expression("functions", func(g *Gen) string {
			return computed(g, pick(g, "tojson | fromjson", "[paths]", "[leaf_paths]", "[.. | tojson]", "[paths | tojson] | sort | unique", "to_entries | map(to_entries)", "[.data[] | explode | implode]", "[.data[] | ascii_downcase, ascii_upcase, ltrimstr(\"v\")]", "[.data[] | @base32, @base64, @uri, @html, @sh, @json]", "[getpath(paths)]",
				"input_line_number", "now | todate", "[.data[] | strptime(\"%Y\")?]", "delpaths([paths])", "[.data | keys | combinations]", "[.data | keys | [., .] | combinations]", "tojson | [match(\".\"; \"g\")]", "splits(\"\"; null)", "[limit(100000; .data | repeat(keys))]", "error", "halt", "get_search_list", "$__loc__", "@text \"\\(..)\"", "ltrimstr(.)", "significand", "getpath([range(10000) | tostring])", "tostream", "[tostream] | fromstream(.[])", "input_filename", "splits(\"a\")", "group_by(.)", "[.. | numbers | gamma]", "bsearch(1)", "min_by(..)", "IN(..; ..)", "INDEX(..)", "ascii", "todate", "debug", "stderr", "limit(-1; .)", "isvalid(..)", "pick(..)", "have_literal_numbers", "abs", "toarray", "trim", "@csv"))
		}),
		expression("nesting", func(g *Gen) string {
			around := pick(g, "(|.|)", "[|.|]", "{a: |.|}", "-|1|", ".[|0|]", ".data | select(|true|)", "if |true| then . else . end", "try (|.|)", "(. as [$a] | |.|)", "\"\\(|1|)\"", "reduce |.| as $x (.; .)", "(|.|)?", "path(|.|)", ".[|0|:]", "first(|.|)", "not(|.|)")
			parts := strings.Split(around, "|")
			head, start, tail := parts[0], parts[len(parts)/2], parts[len(parts)-1]
			return within(expressionLength, g.upTo(1, 2000), func(n int) string { return strings.Repeat(head, n) + start + strings.Repeat(tail, n) })
		}),
		expression("long chains", func(g *Gen) string {
			link := pick(g, ".data|[\"a\"]|", ".|.a|", ".|[0]|", ".|?|", ".data| \\| select(.a == \"x\")|", ".data| \\| select(.n == 1 and .n == 2)|", ".|[]?|", ".|[0:1]|", ".|, .|", ".| // .|", ".data| \\| .[]? \\| select(.name == \"a\") |", ". as $x| \\| . as $x| \\| .", "(1| + 1|) as $x \\| .")
			parts := strings.Split(strings.ReplaceAll(link, "\\|", "\x00"), "|")
			for i := range parts {
				parts[i] = strings.ReplaceAll(parts[i], "\x00", "|")
			}
			return within(expressionLength, g.upTo(1, 2000), func(n int) string {
				return parts[0] + strings.Repeat(parts[1], n) + strings.Join(parts[2:], "")
			})
		}),
		expression("products that are paths", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 300), func(n int) string {
				return each(n, " | ", func(int) string {
					return pick(g, ".[]?", ".data", ".data[]?", "select(.a == 1 or .b == 2)", "select(.data.n == \"1\")", ".[0:]?", ".metadata", "select(.. == 1)")
				})
			})
		}),
		expression("escapes", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 4000), func(n int) string {
				return ".data[\"" + strings.Repeat(pick(g, `\u0041`, `\ud83d\ude00`, `\ud800`, `\\`, "\U0001F600", `\(1)`, `\"`), n) + "\"]"
			})
		}),
		{"jq", "many expressions", func(g *Gen) Input {
			var out []string
			for i := range g.upTo(1, 16_000) {
				out = append(out, pick(g, ".data.key"+strconv.Itoa(i), ".data | .[]", ".data[] | select(. == \"v"+strconv.Itoa(i)+"\")", ".."))
			}
			return ignored(g, "jqPathExpressions", out...)
		}},
	}
}

// jsonPathClasses returns the classes of expensive JSON paths and JSON pointers.
func jsonPathClasses() []Class {
	path := func(name string, generate func(*Gen) string) Class {
		return Class{"jsonpath", name, func(g *Gen) Input {
			path := within(expressionLength, 1, func(int) string { return generate(g) })
			if g.IntN(2) == 0 {
				return ignored(g, "jsonPaths", path)
			}
			return feedback(g, path)
		}}
	}
	return []Class{
		path("recursive descent", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 1000), func(n int) string { return strings.Repeat(pick(g, "..", "..*", "..data", "..[*]", ".*", "[*]"), n) })
		}),
		path("unions", func(g *Gen) string {
			branch := pick(g, "'data'", "'data','metadata'", "*", "..", "0", "0:9999999", "@", "'a','a','a'")
			return within(expressionLength, g.upTo(1, 1000), func(n int) string {
				return repeat(pick(g, 1, 1+g.IntN(10)), "", func(_ int, inner string) string {
					return inner + "[" + each(n, ",", func(int) string { return branch }) + "]"
				})
			})
		}),
		path("filters", func(g *Gen) string {
			filter := pick(g, "[?(@.a==1)]", "[?(@==@)]", "[?(@..*==@..*)]", "[?(@.data=='x')]", "[?(@.a>=\"b\")]", "[?(@)]", "[?(1==1)]", "[?($==$)]", "[?(@[?(@==1)]==1)]")
			return within(expressionLength, g.upTo(1, 400), func(n int) string { return ".data" + strings.Repeat(filter, n) })
		}),
		path("slices", func(g *Gen) string {
			n := g.upTo(1, 2_000_000_000)
			return ".metadata.managedFields" + pick(g, fmt.Sprintf("[0:%d]", n), fmt.Sprintf("[%d:0:-1]", n), fmt.Sprintf("[-%d:]", n), fmt.Sprintf("[0:%d:%d]", n, n), "[::0]", "[::-1]", "[9223372036854775807:]", "[-9223372036854775808]", "[99999999999999999999]")
		}),
		path("ranges", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 400), func(n int) string {
				return ".data}" + strings.Repeat(pick(g, "{range .*}", "{range ..*}", "{range .data..}", "{range @.*}"), n) + "{.}" + strings.Repeat("{end}", n) + "{.kind"
			})
		}),
		path("nesting", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 2000), func(n int) string {
				return strings.Repeat(pick(g, "{", "[", "[?(@.a==", "(", "'", "\""), n) + ".data" + strings.Repeat(pick(g, "}", "]", ")]"), n)
			})
		}),
		path("long text", func(g *Gen) string {
			return pick(g, ".", "['", "..", ".a\\.", ".data}text{") + strings.Repeat(pick(g, "a", "\\", "\\.", "'", "\U0001F600", "a.", "..", "0"), g.upTo(1, 3900))
		}),
		{"jsonpath", "many paths", func(g *Gen) Input {
			var out []string
			for range g.upTo(1, 16_000) {
				out = append(out, pick(g, "..*", ".data.k", ".data", ".metadata", ".metadata..*", "[*]"))
			}
			if g.IntN(2) == 0 {
				return ignored(g, "jsonPaths", out...)
			}
			return feedback(g, out...)
		}},
		{"jsonpointer", "long pointers", func(g *Gen) Input {
			return ignored(g, "jsonPointers", strings.Repeat(pick(g, "/", "/a", "/~0", "/~1", "/0", "/-", "/99999999999999999999", "/\u0000", "/data"), g.upTo(1, 300_000)))
		}},
		{"jsonpointer", "many pointers", func(g *Gen) Input {
			var out []string
			for i := range g.upTo(1, 60_000) {
				out = append(out, pick(g, "/data/key"+strconv.Itoa(i), "/data", "/metadata/name", "/data/k"))
			}
			return ignored(g, "jsonPointers", out...)
		}},
	}
}
