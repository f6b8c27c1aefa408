package hostile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expressionLength is the maximum length of an expression that the server accepts.
const expressionLength = 4000

// celRule returns a ManifestWork with a condition rule that contains the expressions.
func celRule(g *Gen, expressions ...string) Input {
	rule := fields{"condition": "Hostile", "type": "CEL", "celExpressions": expressions}
	if len(expressions) == 1 && g.IntN(4) == 0 {
		rule["celExpressions"] = []string{"true"}
		rule["messageExpression"] = "(" + expressions[0] + ") ? 'yes' : 'no'"
	}
	return configured(g, fields{"conditionRules": []any{rule}}, "Hostile")
}

// celMany returns a ManifestWork with many condition rules of up to 100 expressions each. The
// expressions are all equal or all different.
func celMany(g *Gen) Input {
	expression := pick(g, "true", "1 == 1", "object.data.n == '1'", "[1].all(x, x == 1)", "object.metadata.name.matches('^h')")
	expressions := slices.Repeat([]string{expression}, g.upTo(10, 16_000))
	if g.IntN(2) == 0 {
		for i := range expressions {
			expressions[i] += fmt.Sprintf(" || %d == 0", i)
		}
	}
	rules := []any{}
	for chunk := range slices.Chunk(expressions, 100) {
		rules = append(rules, fields{"condition": "Hostile" + strconv.Itoa(len(rules)), "type": "CEL", "celExpressions": chunk})
	}
	return configured(g, fields{"conditionRules": rules}, "Hostile0")
}

// celList returns a list of about n items.
func celList(g *Gen, n int) string {
	numbers := each(min(n, 200), ",", strconv.Itoa)
	return pick(g, "["+numbers+"]", "['"+strings.ReplaceAll(numbers, ",", "','")+"']", fmt.Sprintf("lists.range(%d)", n),
		"object.data.map(k, k)", "object.data.k.split('')", "dyn(object.data.map(k, object.data[k]))")
}

// celMap returns a map, or an object that behaves like a map.
func celMap(g *Gen) string {
	return pick(g, "object", "object.data", "object.metadata", "{'a': 1, 'b': 2}", "{1: 'x', 2: 'y'}", "dyn({'a': {'b': 1}})")
}

// celDoubledChain returns a value that is doubled n times in a chain of calls, so that the
// expression does not nest.
func celDoubledChain(g *Gen, n int, start string) string {
	if g.IntN(3) == 0 {
		return "optional.of(" + start + ")" + strings.Repeat(pick(g, ".optMap(x, x + x)", ".optMap(x, [x, x])", ".optFlatMap(x, optional.of([x, x]))"), n) + ".value()"
	}
	return "[" + start + "]" + strings.Repeat(pick(g, ".map(x, x + x)", ".map(x, [x, x])", ".map(x, {'a': x, 'b': x})", ".map(x, x, x + x)"), n)
}

// celConsumed returns an expression that reads all of a value.
func celConsumed(g *Gen, value string) string {
	return fill(pick(g,
		"% == %", "1 in dyn(%)", "dyn(%).size() > 0", "dyn(%) != dyn(1)", "[%].flatten(5).size() > 0", "sets.contains(dyn(%), [1])",
		"dyn(%).exists(x, x == 1)", "string(dyn(%)) == ''", "'%s'.format([dyn(%)]) == ''", "dyn(%).distinct().size() > 0",
		"dyn(%).sort().size() > 0", "dyn(%).indexOf(1) == 0", "type(%) == int", "dyn(%).join(',') == ''", "dyn(%).reverse() == []",
	), value)
}

// celText returns an expression that makes a text longer, most often with nested calls.
func celText(g *Gen, n int) string {
	start := pick(g, "'a'", "object.data.k", "'\U0001F600'")
	return pick(g,
		nest(g, n, start, "%.replace('', '"+strings.Repeat("a", 20)+"')"),
		nest(g, n, start, "[%].map(s, s + s)[0]"),
		nest(g, n, start, "lists.range(1000).map(i, %).join('')"),
		nest(g, n, start, "[%].map(s, '%s%s%s%s'.format([s, s, s, s]))[0]"),
		nest(g, n, start, "strings.quote(%)"),
		nest(g, n, "b'"+strings.Repeat("a", 20)+"'", "bytes(base64.encode(%))"),
		fmt.Sprintf("'%%.%df'.format([1.5])", g.upTo(1, 1_000_000_000)),
	)
}

// regex returns a pattern that is large, slow to compile, or slow to match.
func regex(g *Gen) string {
	n := g.upTo(2, 1000)
	return pick(g,
		fmt.Sprintf("(a{1,%d}){1,%d}", n, n),
		strings.Repeat("(", min(n, 500))+"a"+strings.Repeat(")*", min(n, 500)),
		strings.Repeat("(a?){100}", min(n, 200)),
		fmt.Sprintf("(?i)([\\p{L}]{1,%d})+", n),
		each(min(n, 400), "|", func(i int) string { return "a{" + strconv.Itoa(i) + "}" }),
		strings.Repeat("[^a-y]?", min(n, 400)),
		fmt.Sprintf("((a{%d}){%d}){10}", min(n, 30), min(n, 30)),
		"^(.*a){"+strconv.Itoa(min(n, 900))+"}$",
		`(\pL|\pN|\pS){`+strconv.Itoa(min(n, 300))+"}",
	)
}

// The random expressions and values. $b is a condition, $v a value, both of the next lower depth, and $x a variable.
var (
	celConditions = []string{
		"($b && $b)", "($b ? $b : $b)", "!$b", "$v.all($x, $b)", "$v.exists($x, $b)", "$v.exists_one($x, $b)", "$consumed", "$consumed", "$v == $v", "$v != $v",
		`string($v).matches("a*")`, `string($v).matches("(a+)+$")`, `string($v).matches(".*")`, "dyn($v) in $v", "optional.of($v).optMap($x, $b).orValue(false)",
		"[$b].map($x, [$x, $x]).size() > 0", "(1 / 0 > 0 || $b)", "sets.contains(dyn($v), dyn($v))", "sets.intersects(dyn($v), dyn($v))", "sets.equivalent(dyn($v), dyn($v))",
	}
	celReference = regexp.MustCompile(`\$(b|v|x|consumed)`)
)

// celGrammar returns a random boolean expression.
func celGrammar(g *Gen, depth int) string {
	if depth <= 0 {
		return pick(g, "true", "has(object.data)", "1 in [1]", "object.data.n == '1'", "type(object) == map")
	}
	return celReference.ReplaceAllStringFunc(pick(g, celConditions...), func(reference string) string {
		switch reference {
		case "$b":
			return celGrammar(g, depth-1)
		case "$v":
			return celValue(g, depth-1)
		case "$consumed":
			return celConsumed(g, celValue(g, depth-1))
		}
		return name(depth)
	})
}

// celValue returns a random value, most often a list.
func celValue(g *Gen, depth int) string {
	return nest(g, depth, celList(g, 1+g.IntN(50)),
		"%.map(#, #)", "[%].map(#, # + #)[0]", "%.filter(#, true)", "% + %", "[%, %]", "{'a': %, 'b': %}", "dyn(%)",
		"%.distinct()", "%.reverse()", "[%].flatten(2)", "object", "object.data", "'x'.split('')", "[%].map(#, {'k': #})")
}

func celClasses() []Class {
	// An expression contains the number of parts that fits, up to a maximum.
	expression := func(name string, most int, generate func(g *Gen, n int) string) Class {
		return Class{"cel", name, func(g *Gen) Input { return celRule(g, within(g, most, generate)) }}
	}
	return []Class{
		expression("nested comprehensions over lists", 12, func(g *Gen, n int) string {
			list := celList(g, g.upTo(2, 1000))
			return nest(g, n, "true", list+".all(#, %)", list+".exists_one(#, %)", list+".all(#, %)", list+".exists(#, %)")
		}),
		expression("nested comprehensions over maps", 60, func(g *Gen, n int) string {
			return nest(g, n, name(n-1)+" != ''", celMap(g)+".all(#, %)")
		}),
		expression("nested maps that double types", 60, func(g *Gen, n int) string {
			value := pick(g, "{'a': %, 'b': %}", "[{'a': %}]", "{'a': [%, %]}", "{%: %}")
			return "[1]" + each(n, "", func(i int) string { return ".map(" + name(i) + ", " + fill(value, name(i)) + ")" }) + pick(g, ".size() > 0", " == []")
		}),
		expression("comprehensions in ranges of comprehensions", 40, func(g *Gen, n int) string {
			return nest(g, n, celMap(g), "{'a': %.map(#, {'k': #})}") + ".size() > 0"
		}),
		expression("doubled values", 60, func(g *Gen, n int) string {
			return celConsumed(g, celDoubledChain(g, n, pick(g, "[1]", "'a'", "b'a'", "[{'a': 1}]", "object.data", "lists.range(1000)")))
		}),
		expression("nested doubled values", 60, func(g *Gen, n int) string {
			return celConsumed(g, nest(g, n, pick(g, "[1]", "'a'"), "[%].map(x, x + x)[0]", "optional.of(%).optMap(x, x + x).value()", "[%].map(x, [x, x])", "(true ? % : [])"))
		}),
		expression("macros that copy arguments", 40, func(g *Gen, n int) string {
			return nest(g, n, "optional.of(1)", "%.optMap(x, x + 1)", "%.optFlatMap(x, optional.of(x))") + ".hasValue()"
		}),
		expression("macros within macros", 200, func(g *Gen, n int) string {
			return nest(g, n, "true", "[1].exists_one(#, %)", "optional.of(%).optMap(x, x).value()", "[%].all(x, x)", "has(object.data) && %")
		}),
		expression("growing text", 40, func(g *Gen, n int) string {
			return celText(g, n) + pick(g, ".size() > 0", " == 'x'", ".matches('a+$')", ".contains('b')", ".reverse() == ''", ".upperAscii() == ''", ".lastIndexOf('b') == 1", ".split('').size() > 0")
		}),
		expression("regular expressions", 1, func(g *Gen, _ int) string {
			text, pattern := pick(g, "object.data.k", "'"+strings.Repeat("a", 30)+"'", "string(object)"), strconv.Quote(regex(g))
			return pick(g, text+".matches("+pattern+")", text+".find("+pattern+") == ''", text+".findAll("+pattern+").size() > 0", "object.data.all(k, object.data[k].matches("+pattern+"))")
		}),
		expression("dynamic regular expressions", 1, func(g *Gen, _ int) string {
			return pick(g, "object.data.k.matches(object.data.p)", "object.data.all(k, object.data.all(p, object.data[k].matches(object.data[p])))",
				fmt.Sprintf("lists.range(%d).all(i, object.data.k.matches('(a{' + string(i) + '}){1,9}'))", g.upTo(1, 900)),
				"object.data.k.matches(["+strconv.Quote(regex(g))+"].map(s, s + s)[0])")
		}),
		expression("list functions", 1, func(g *Gen, _ int) string {
			return fill(pick(g, "%.sort().size() > 0", "%.distinct().size() > 0", "[%, %].flatten().size() > 0", "%.sortBy(x, x).size() > 0", "%.reverse() == %",
				"%.slice(0, 5).size() > 0", "%.sum() == 0", "%.max() == %.min()", "%.isSorted()", "%.indexOf(-1) == 0", "%.map(x, %).size() > 0", "%.all(x, x in %)", "% + % + % == []",
				"%.all(x, %.distinct().size() > 0)", "%.all(x, %.sort() == %)"), celList(g, g.upTo(10, 10_000_000)))
		}),
		expression("sets", 1, func(g *Gen, _ int) string {
			return fill(pick(g, "sets.contains(dyn(%), dyn(%))", "sets.equivalent(dyn(%), dyn(%))", "sets.intersects(dyn(%), [dyn('x')])", "%.all(x, sets.contains(dyn(%), dyn(%)))"), celList(g, g.upTo(10, 1_000_000)))
		}),
		expression("values of libraries", 3000, func(g *Gen, n int) string {
			digits := strings.Repeat("9", n)
			return pick(g,
				"quantity('"+digits+"').isInteger()", "quantity('1e"+digits+"').isInteger()", "isQuantity('1"+strings.Repeat("0", n)+"Ei')",
				"quantity('1').add(quantity('1e-"+digits+"')).isInteger()", "semver('"+digits+".1.1').major() > 0", "isSemver('1.1.1-"+strings.Repeat("a.", n/2)+"a')",
				"url('https://"+strings.Repeat("a", n)+"').getHost() == ''", "url('https://a?"+strings.Repeat("a=b&", n/4)+"').getQuery().size() > 0",
				"ip('"+strings.Repeat(":", n)+"').family() == 4", "cidr('::/"+digits+"').containsIP('::1')", "isIP(object.data.k)", "isURL(object.data.k)",
				"double('"+digits+"') > 0.0", "int('"+digits+"') > 0", "timestamp('2000-01-01T00:00:00."+digits+"Z').getFullYear() > 0",
				"duration('"+digits+"h') > duration('1s')", "timestamp('2000-01-01T00:00:00Z').getHours('"+digits[:min(n, 100)]+"') > 0",
				"format.dns1123Subdomain().validate(object.data.k).hasValue()", "base64.decode('"+digits+"') == b''", "base64.decode(object.data.k) == b''")
		}),
		expression("quantities that grow", 100, func(g *Gen, n int) string {
			return nest(g, n, "quantity('"+pick(g, "9", "1e10", "1e-9", "0.000000001", "1Ei")+"')", "[%].map(q, q.add(q))[0]") + ".isInteger()"
		}),
		expression("huge literals", 2000, func(g *Gen, n int) string {
			items := strings.Join(slices.Repeat([]string{pick(g, "1", "'a'", "1.5", "true", "null", "b'a'", "1u", "{}", "[]", "{'a': 1}")}, n), ",")
			return pick(g, "[", "dyn([") + items + "].size() > 0"
		}),
		expression("literals of mixed types", 1000, func(_ *Gen, n int) string {
			return "[" + each(n, ",", func(i int) string { return fmt.Sprintf("dyn({'k%d': [%d, {%d: 'a'}]})", i, i, i) }) + "].size() > 0"
		}),
		expression("nesting", 2000, func(g *Gen, n int) string {
			return around(n, pick(g, "(¦true¦)", "[¦1¦].size()¦ > 0", "{'a': ¦1¦}.size()¦ > 0", "!¦true", "-¦1¦¦ < 0", "dyn(¦true¦)", "type(¦1¦)¦ == type", "[¦[1]¦]¦ == [[1]]", "string(¦'a'¦)¦ == 'a'", "[¦true¦][0]", "{'a':¦true¦}.a"))
		}),
		expression("chains", 2000, func(g *Gen, n int) string {
			return chain(n, pick(g, "true¦ && true", "false¦ || true", "1¦ + 1¦ > 0", "'a'¦ + 'a'¦ == ''", "object¦.a¦ == 1", "object¦['a']¦ == 1", "object¦.?a¦.hasValue()", "[1]¦ + [1]¦ == []", "1¦ - 1¦ < 1", "1¦ * 9¦ > 1",
				"true¦ ? true : true", "'a'¦.lowerAscii()¦ == 'a'", "[1]¦.reverse()¦ == []", "[[1]]¦.flatten()¦ == []", "1¦ == 1", "true¦ || 1/0 > 0", "has(object.a)¦ && has(object.a.b)", "dyn(1)¦ + dyn(1)¦ > 1", "'a'¦.replace('a', 'aa')¦ == ''", "'%s'¦.format(['%s%s'])¦ == ''"))
		}),
		expression("escapes", 4000, func(g *Gen, n int) string {
			quote := pick(g, `'`, `"`, `'''`, `"""`, `r'`, `b'`)
			end := strings.TrimLeft(quote, "rb")
			return quote + strings.Repeat(pick(g, `\\`, `\u0041`, `\U0001F600`, `\x41`, `\101`, `\n`, `\u`, `\U00110000`, "\U0001F600", "\u202e", "a\u0301"), n) + end + " != " + quote + end
		}),
		expression("whitespace and comments", 1000, func(g *Gen, n int) string {
			return strings.Repeat(pick(g, " ", "\n", "\t", "// a\n", "//\u2028\n"), n) + "true"
		}),
		expression("products over the object", 6, func(g *Gen, n int) string {
			condition := pick(g, "# != ''", "object.data[#] != 'x'", "string(object) != #", "object == object", "object.data[#].matches(object.data.p)", "# in object.data", "object.data[#].split('').size() >= 0")
			return nest(g, n, strings.ReplaceAll(condition, "#", name(n-1)), "object.data.all(#, %)")
		}),
		expression("equality", 1, func(g *Gen, _ int) string {
			return pick(g, "object == object", "[object, object] == [object, object]", fmt.Sprintf("lists.range(%d).all(i, object == object)", g.upTo(1, 100_000)),
				fmt.Sprintf("lists.range(%d) == lists.range(%d)", g.upTo(1, 10_000_000), g.upTo(1, 10_000_000)), "object in [object]", "[object.data].map(d, [d, d] + [d, d]) == [[object.data]]")
		}),
		expression("errors that are absorbed", 1, func(g *Gen, _ int) string {
			inner := pick(g, "1 / 0 > 0", "object.nothing == 1", "[][0] == 1", "'a'.matches('(')", "int('x') > 0", "lists.range(-1).size() > 0", "dyn('a') > 1")
			return fmt.Sprintf("lists.range(%d).exists(i, %s) || object.data.exists(k, object.data.exists(l, %s))", g.upTo(1, 1_000_000), inner, inner)
		}),
		expression("errors with long messages", 1900, func(g *Gen, n int) string {
			return pick(g, "object.data.k == undeclared", "int(object.data.k) > 0", "timestamp(object.data.k) > timestamp(object.data.k)", strings.Repeat("a.", n)+"b", strings.Repeat("f(", n), strings.Repeat("$ ", n), strings.Repeat("a b ", n))
		}),
		expression("random expressions", 8, celGrammar),
		{"cel", "many expressions", celMany},
		{"cel", "many long expressions", func(g *Gen) Input {
			long := "object.data.all(k, " + strings.Repeat("k != '' && ", 300) + "true && # >= 0)"
			return celRule(g, strings.Split(each(g.upTo(1, 700), "\n", func(i int) string { return strings.ReplaceAll(long, "#", strconv.Itoa(i)) }), "\n")...)
		}},
	}
}
