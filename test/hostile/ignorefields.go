package hostile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ignored returns a ManifestWork with a manifest that is applied without the fields that the
// expressions select. The object exists, so that the agent evaluates the expressions.
func ignored(g *Gen, of string, expressions ...string) Input {
	return configured(g, fields{"updateStrategy": fields{"type": "ServerSideApply", "serverSideApply": fields{
		"force": true, "ignoreFields": []any{fields{"condition": pick(g, "OnSpokePresent", "OnSpokeChange"), of: expressions}},
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
	expression := func(name string, most int, generate func(g *Gen, n int) string) Class {
		return Class{"jq", name, func(g *Gen) Input { return ignored(g, "jqPathExpressions", within(g, most, generate)) }}
	}
	// An expression must be a path, so computations are in a condition or an index.
	computed := func(name string, generate func(g *Gen) string) Class {
		return expression(name, 1, func(g *Gen, _ int) string {
			return fill(pick(g, ".data | select(% | length > 0)", ".data[% | tostring]", "select(% == 1)", "first(select(% != null))", ".data | map(select(% == .))"), "("+generate(g)+")")
		})
	}
	number := func(g *Gen) string {
		return pick(g, "1e9", "1e18", "1e308", "9007199254740993", strconv.Itoa(g.upTo(10, 1_000_000_000)))
	}
	return []Class{
		computed("string repetition", func(g *Gen) string {
			n := g.upTo(10, 1_000_000_000)
			return pick(g, fmt.Sprintf(`"a" * %d`, n), fmt.Sprintf(`("a" * 30000) * %d`, n/30000+1), fmt.Sprintf(`"%s" * %d`, strings.Repeat("a", 1000), n/1000+1), `"a" * `+number(g), `[limit(`+strconv.Itoa(n)+`; repeat("a"))] | add`)
		}),
		computed("ranges", func(g *Gen) string {
			return fill(pick(g, "[range(%)]", "[range(0; %; 1e-9)]", "reduce range(%) as $i (0; . + $i)", "[limit(%; repeat(1))]", "last(range(%))", "[range(%)] | sort", "[range(%)] | tostring", "[foreach range(%) as $i ([]; . + [$i])]", "[range(%)] | combinations", "first(range(%) | select(. < 0))"), number(g))
		}),
		expression("recursion", 300, func(g *Gen, n int) string {
			return pick(g, "recurse", "..", "recurse(.)", "recurse(.; true)", "[recurse(. ; . < 1e9)]", ".. | .. | .. | ..", "def f: f; f", "def f: .data | f; f", "def f(g): f(g | g); f(.)", "def f($a): f($a + [$a]); f([])", "repeat(.)", "while(true; .)", "until(false; .)",
				"walk(walk(walk(.)))", "env", "$ENV", "input", "[inputs]", "label $out | repeat(., break $out)", "limit(1e9; recurse(.data?))", strings.Repeat("def f: ", n)+"."+g.long(300, "; f"))
		}),
		expression("products of alternatives", 400, func(g *Gen, n int) string {
			return chain(n-1, pick(g, "(.,.)¦ | (.,.)", "(.a,.b)¦ | (.a,.b)", "(.data,.metadata)¦ | (.data,.metadata)", "..¦ | ..", ".[]?¦ | .[]?", "recurse¦ | recurse", "(.data?,.)¦ | (.data?,.)"))
		}),
		computed("growing values", func(g *Gen) string {
			return fill(pick(g, "reduce range(%) as $i (\"a\"; . + .)", "reduce range(%) as $i ([1]; . + .)", "reduce range(%) as $i ([1]; [., .])", "reduce range(%) as $i (\"a\"; \"\\(.)\\(.)\")", "reduce range(%) as $i (10; . * .)",
				"reduce range(%) as $i ({}; {a: ., b: .}) | tojson", "reduce range(%) as $i (\"a\"; @base64)", "reduce range(%) as $i (\"\\\"\"; tojson)", "reduce range(%) as $i (\"a\"; gsub(\"a\"; \"aa\"))", "reduce range(%) as $i ([1]; flatten + [.])", "[range(%)] | [combinations(%)]", "reduce range(%) as $i ([1]; . as $x | map($x))", "reduce range(%) as $i (\"[]\"; \"[\\(.)]\") | fromjson"), strconv.Itoa(g.upTo(1, 60)))
		}),
		expression("huge numbers", 3900, func(g *Gen, n int) string {
			digits := func(most int) string { return strings.Repeat("9", min(n, most)) }
			return pick(g, digits(n)+" as $n | .data", ".["+digits(n)+"]", ".data | select(. == "+digits(n)+")", "select("+digits(n)+" * "+"9 > 1)", ".[:"+digits(n)+"]", ".data.n | select(. < 1e"+digits(300)+")", "select("+digits(1900)+" % 7 == 1)", "select(pow(10; "+digits(9)+") > 1)")
		}),
		computed("arrays that are far too long", func(g *Gen) string {
			return fill(pick(g, "null | setpath([%]; 1)", "[] | .[%] = 1", "[null] | .[%:] = [1]", "[1] * %", "[range(100)] | .[-%]", "null | [limit(%; repeat(null))]", "[splits(\"\")] | .[%]", "[.[]?] | transpose | .[%]"), strconv.Itoa(g.upTo(100, 536_870_911)))
		}),
		computed("regular expressions", func(g *Gen) string {
			return fill(pick(g, ".data.k | test(%)", ".data.k | [scan(%)]", ".data.k | gsub(%; \"aaaaaaaaaa\")", ".data.k | [match(%; \"g\")]", ".data.k | [splits(%)]", ".data.k | capture(%)", ".data | [.[] | select(test(%))]", ".data as $d | [$d[] | test($d.p)]"), strconv.Quote(regex(g)))
		}),
		computed("functions", func(g *Gen) string {
			return pick(g, "tojson | fromjson", "[paths]", "[leaf_paths]", "[.. | tojson]", "[paths | tojson] | sort | unique", "to_entries | map(to_entries)", "[.data[] | explode | implode]", "[.data[] | ascii_downcase, ascii_upcase, ltrimstr(\"v\")]", "[.data[] | @base32, @base64, @uri, @html, @sh, @json]", "[getpath(paths)]",
				"input_line_number", "now | todate", "[.data[] | strptime(\"%Y\")?]", "delpaths([paths])", "[.data | keys | combinations]", "[.data | keys | [., .] | combinations]", "tojson | [match(\".\"; \"g\")]", "splits(\"\"; null)", "[limit(100000; .data | repeat(keys))]", "error", "halt", "get_search_list", "$__loc__", "@text \"\\(..)\"", "ltrimstr(.)", "significand", "getpath([range(10000) | tostring])", "tostream", "[tostream] | fromstream(.[])", "input_filename", "splits(\"a\")", "group_by(.)", "[.. | numbers | gamma]", "bsearch(1)", "min_by(..)", "IN(..; ..)", "INDEX(..)", "ascii", "todate", "debug", "stderr", "limit(-1; .)", "isvalid(..)", "pick(..)", "have_literal_numbers", "abs", "toarray", "trim", "@csv")
		}),
		expression("nesting", 2000, func(g *Gen, n int) string {
			return around(n, pick(g, "(¦.¦)", "[¦.¦]", "{a: ¦.¦}", "-¦1", ".[¦0¦]", ".data | select(¦true¦)", "if ¦true¦ then . else . end", "try (¦.¦)", "(. as [$a] | ¦.¦)", "\"\\(¦1¦)\"", "reduce ¦.¦ as $x (.; .)", "(¦.¦)?", "path(¦.¦)", ".[¦0¦:]", "first(¦.¦)", "not(¦.¦)"))
		}),
		expression("long chains", 2000, func(g *Gen, n int) string {
			return chain(n, pick(g, ".data¦[\"a\"]", ".¦.a", ".¦[0]", ".¦?", ".data¦ | select(.a == \"x\")", ".data¦ | select(.n == 1 and .n == 2)", ".¦[]?", ".¦[0:1]", ".¦, .", ".¦ // .", ".data¦ | .[]? | select(.name == \"a\") ", ". as $x¦ | . as $x¦ | .", "(1¦ + 1¦) as $x | ."))
		}),
		expression("products that are paths", 300, func(g *Gen, n int) string {
			return each(n, " | ", func(int) string {
				return pick(g, ".[]?", ".data", ".data[]?", "select(.a == 1 or .b == 2)", "select(.data.n == \"1\")", ".[0:]?", ".metadata", "select(.. == 1)")
			})
		}),
		expression("escapes", 4000, func(g *Gen, n int) string {
			return ".data[\"" + strings.Repeat(pick(g, `\u0041`, `\ud83d\ude00`, `\ud800`, `\\`, "\U0001F600", `\(1)`, `\"`), n) + "\"]"
		}),
		{"jq", "many expressions", func(g *Gen) Input {
			return ignored(g, "jqPathExpressions", g.many(16_000, ".data.key%", ".data | .[]", ".data[] | select(. == \"v%\")", "..")...)
		}},
	}
}

// jsonPathClasses returns the classes of expensive JSON paths and JSON pointers.
func jsonPathClasses() []Class {
	paths := func(g *Gen, of ...string) Input {
		if g.IntN(2) == 0 {
			return ignored(g, "jsonPaths", of...)
		}
		return feedback(g, of...)
	}
	path := func(name string, most int, generate func(g *Gen, n int) string) Class {
		return Class{"jsonpath", name, func(g *Gen) Input { return paths(g, within(g, most, generate)) }}
	}
	return []Class{
		path("recursive descent", 1000, func(g *Gen, n int) string {
			return strings.Repeat(pick(g, "..", "..*", "..data", "..[*]", ".*", "[*]"), n)
		}),
		path("unions", 1000, func(g *Gen, n int) string {
			union := "[" + strings.Join(slices.Repeat([]string{pick(g, "'data'", "'data','metadata'", "*", "..", "0", "0:9999999", "@", "'a','a','a'")}, n), ",") + "]"
			return strings.Repeat(union, pick(g, 1, 1+g.IntN(10)))
		}),
		path("filters", 400, func(g *Gen, n int) string {
			return ".data" + strings.Repeat(pick(g, "[?(@.a==1)]", "[?(@==@)]", "[?(@..*==@..*)]", "[?(@.data=='x')]", "[?(@.a>=\"b\")]", "[?(@)]", "[?(1==1)]", "[?($==$)]", "[?(@[?(@==1)]==1)]"), n)
		}),
		path("slices", 2_000_000_000, func(g *Gen, n int) string {
			return ".metadata.managedFields" + fill(pick(g, "[0:%]", "[%:0:-1]", "[-%:]", "[0:%:%]", "[::0]", "[::-1]", "[9223372036854775807:]", "[-9223372036854775808]", "[99999999999999999999]"), strconv.Itoa(n))
		}),
		path("ranges", 400, func(g *Gen, n int) string {
			return ".data}" + around(n, pick(g, "{range .*}", "{range ..*}", "{range .data..}", "{range @.*}")+"¦{.}¦{end}¦{.kind")
		}),
		path("nesting", 2000, func(g *Gen, n int) string {
			return strings.Repeat(pick(g, "{", "[", "[?(@.a==", "(", "'", "\""), n) + ".data" + strings.Repeat(pick(g, "}", "]", ")]"), n)
		}),
		path("long text", 3900, func(g *Gen, n int) string {
			return pick(g, ".", "['", "..", ".a\\.", ".data}text{") + strings.Repeat(pick(g, "a", "\\", "\\.", "'", "\U0001F600", "a.", "..", "0"), n)
		}),
		{"jsonpath", "many paths", func(g *Gen) Input {
			return paths(g, g.many(16_000, "..*", ".data.k", ".data", ".metadata", ".metadata..*", "[*]")...)
		}},
		{"jsonpointer", "long pointers", func(g *Gen) Input {
			return ignored(g, "jsonPointers", g.long(300_000, "/", "/a", "/~0", "/~1", "/0", "/-", "/99999999999999999999", "/\u0000", "/data"))
		}},
		{"jsonpointer", "many pointers", func(g *Gen) Input {
			return ignored(g, "jsonPointers", g.many(60_000, "/data/key%", "/data", "/metadata/name", "/data/k")...)
		}},
	}
}
