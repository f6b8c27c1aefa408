package hostile

import (
	"fmt"
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
	total := g.upTo(10, 16_000)
	expression := pick(g, "true", "1 == 1", "object.data.n == '1'", "[1].all(x, x == 1)", "object.metadata.name.matches('^h')")
	unique := g.IntN(2) == 0
	rules := []any{}
	for i := 0; i < total; {
		expressions := []string{}
		for j := 0; j < 100 && i < total; i, j = i+1, j+1 {
			if unique {
				expressions = append(expressions, fmt.Sprintf("%s || %d == 0", expression, i))
			} else {
				expressions = append(expressions, expression)
			}
		}
		rules = append(rules, fields{"condition": "Hostile" + strconv.Itoa(len(rules)), "type": "CEL", "celExpressions": expressions})
	}
	return configured(g, fields{"conditionRules": rules}, "Hostile0")
}

// celList returns a list of about n items.
func celList(g *Gen, n int) string {
	switch g.IntN(6) {
	case 0:
		return "[" + each(min(n, 200), ",", strconv.Itoa) + "]"
	case 1:
		return "[" + each(min(n, 200), ",", func(i int) string { return fmt.Sprintf("'%d'", i) }) + "]"
	case 2:
		return fmt.Sprintf("lists.range(%d)", n)
	case 3:
		return "object.data.map(k, k)"
	case 4:
		return "object.data.k.split('')"
	default:
		return "dyn(object.data.map(k, object.data[k]))"
	}
}

// celMap returns a map, or an object that behaves like a map.
func celMap(g *Gen) string {
	return pick(g, "object", "object.data", "object.metadata", "{'a': 1, 'b': 2}", "{1: 'x', 2: 'y'}", "dyn({'a': {'b': 1}})")
}

// celDoubledChain returns a value that is doubled n times in a chain of calls, so that the
// expression does not nest.
func celDoubledChain(g *Gen, n int, start string) string {
	step := pick(g, ".map(x, x + x)", ".map(x, [x, x])", ".map(x, {'a': x, 'b': x})", ".map(x, x, x + x)")
	if g.IntN(3) == 0 {
		return "optional.of(" + start + ")" + strings.Repeat(pick(g, ".optMap(x, x + x)", ".optMap(x, [x, x])", ".optFlatMap(x, optional.of([x, x]))"), n) + ".value()"
	}
	return "[" + start + "]" + strings.Repeat(step, n)
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
	switch g.IntN(7) {
	case 0:
		return repeat(n, start, func(_ int, inner string) string { return inner + ".replace('', '" + strings.Repeat("a", 20) + "')" })
	case 1:
		return repeat(n, start, func(_ int, inner string) string { return "[" + inner + "].map(s, s + s)[0]" })
	case 2:
		return repeat(n, start, func(_ int, inner string) string { return "lists.range(1000).map(i, " + inner + ").join('')" })
	case 3:
		return repeat(n, start, func(_ int, inner string) string { return "[" + inner + "].map(s, '%s%s%s%s'.format([s, s, s, s]))[0]" })
	case 4:
		return repeat(n, "b'"+strings.Repeat("a", 20)+"'", func(_ int, inner string) string { return "bytes(base64.encode(" + inner + "))" })
	case 5:
		return fmt.Sprintf("'%%.%df'.format([1.5])", g.upTo(1, 1_000_000_000))
	default:
		return repeat(n, start, func(_ int, inner string) string {
			return "strings.quote(" + inner + ")"
		})
	}
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

// celGrammar returns a random boolean expression.
func celGrammar(g *Gen, depth int) string {
	if depth <= 0 {
		return pick(g, "true", "has(object.data)", "1 in [1]", "object.data.n == '1'", "type(object) == map")
	}
	deeper := func() string { return celGrammar(g, depth-1) }
	v := name(depth)
	switch g.IntN(14) {
	case 0:
		return "(" + deeper() + " && " + deeper() + ")"
	case 1:
		return "(" + deeper() + " ? " + deeper() + " : " + deeper() + ")"
	case 2:
		return "!" + deeper()
	case 3, 4:
		return celValue(g, depth-1) + pick(g, ".all(", ".exists(", ".exists_one(") + v + ", " + deeper() + ")"
	case 5, 6:
		return celConsumed(g, celValue(g, depth-1))
	case 7:
		return celValue(g, depth-1) + pick(g, " == ", " != ") + celValue(g, depth-1)
	case 8:
		return "string(" + celValue(g, depth-1) + ").matches(" + strconv.Quote(pick(g, "a*", "(a+)+$", ".*")) + ")"
	case 9:
		return "dyn(" + celValue(g, depth-1) + ") in " + celValue(g, depth-1)
	case 10:
		return "optional.of(" + celValue(g, depth-1) + ").optMap(" + v + ", " + deeper() + ").orValue(false)"
	case 11:
		return "[" + deeper() + "].map(" + v + ", [" + v + ", " + v + "]).size() > 0"
	case 12:
		return "(1 / 0 > 0 || " + deeper() + ")"
	default:
		return pick(g, "sets.contains(", "sets.intersects(", "sets.equivalent(") + "dyn(" + celValue(g, depth-1) + "), dyn(" + celValue(g, depth-1) + "))"
	}
}

// celValue returns a random value, most often a list.
func celValue(g *Gen, depth int) string {
	if depth <= 0 {
		return celList(g, 1+g.IntN(50))
	}
	inner, v := celValue(g, depth-1), name(depth)
	return fill(pick(g,
		"%.map("+v+", "+v+")", "[%].map("+v+", "+v+" + "+v+")[0]", "%.filter("+v+", true)", "% + %", "[%, %]", "{'a': %, 'b': %}", "dyn(%)",
		"%.distinct()", "%.reverse()", "[%].flatten(2)", "object", "object.data", "'x'.split('')", "[%].map("+v+", {'k': "+v+"})",
	), inner)
}

func celClasses() []Class {
	expression := func(name string, generate func(*Gen) string) Class {
		return Class{"cel", name, func(g *Gen) Input { return celRule(g, generate(g)) }}
	}
	return []Class{
		expression("nested comprehensions over lists", func(g *Gen) string {
			list, depth := celList(g, g.upTo(2, 1000)), g.upTo(1, 12)
			return within(expressionLength, depth, func(depth int) string {
				return repeat(depth, "true", func(i int, inner string) string {
					return list + pick(g, ".all(", ".exists_one(", ".all(", ".exists(") + name(i) + ", " + inner + ")"
				})
			})
		}),
		expression("nested comprehensions over maps", func(g *Gen) string {
			of, depth := celMap(g), g.upTo(1, 60)
			return within(expressionLength, depth, func(depth int) string {
				return repeat(depth, "a != ''", func(i int, inner string) string { return of + ".all(" + name(depth-1-i) + ", " + inner + ")" })
			})
		}),
		expression("nested maps that double types", func(g *Gen) string {
			value := pick(g, "{'a': %, 'b': %}", "[{'a': %}]", "{'a': [%, %]}", "{%: %}")
			depth := g.upTo(1, 60)
			return within(expressionLength, depth, func(depth int) string {
				if g.IntN(2) == 0 {
					return "[1]" + each(depth, "", func(i int) string { return ".map(" + name(i) + ", " + fill(value, name(i)) + ")" }) + ".size() > 0"
				}
				return repeat(depth, "[1]", func(i int, inner string) string { return inner + ".map(" + name(i) + ", " + fill(value, name(i)) + ")" }) + " == []"
			})
		}),
		expression("comprehensions in ranges of comprehensions", func(g *Gen) string {
			depth, of := g.upTo(1, 40), celMap(g)
			return within(expressionLength, depth, func(depth int) string {
				return repeat(depth, of, func(i int, inner string) string {
					return "{'a': " + inner + ".map(" + name(i) + ", {'k': " + name(i) + "})}"
				}) + ".size() > 0"
			})
		}),
		expression("doubled values", func(g *Gen) string {
			start := pick(g, "[1]", "'a'", "b'a'", "[{'a': 1}]", "object.data", "lists.range(1000)")
			return within(expressionLength, g.upTo(1, 60), func(n int) string { return celConsumed(g, celDoubledChain(g, n, start)) })
		}),
		expression("nested doubled values", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 60), func(n int) string {
				return celConsumed(g, repeat(n, pick(g, "[1]", "'a'"), func(_ int, inner string) string {
					return fill(pick(g, "[%].map(x, x + x)[0]", "optional.of(%).optMap(x, x + x).value()", "[%].map(x, [x, x])", "(true ? % : [])"), inner)
				}))
			})
		}),
		expression("macros that copy arguments", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 40), func(n int) string {
				return repeat(n, "optional.of(1)", func(_ int, inner string) string {
					return inner + pick(g, ".optMap(x, x + 1)", ".optFlatMap(x, optional.of(x))")
				}) + ".hasValue()"
			})
		}),
		expression("macros within macros", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 200), func(n int) string {
				return repeat(n, "true", func(i int, inner string) string {
					return fill(pick(g, "[1].exists_one("+name(i)+", %)", "optional.of(%).optMap(x, x).value()", "[%].all(x, x)", "has(object.data) && %"), inner)
				})
			})
		}),
		expression("growing text", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 40), func(n int) string {
				return celText(g, n) + pick(g, ".size() > 0", " == 'x'", ".matches('a+$')", ".contains('b')", ".reverse() == ''", ".upperAscii() == ''", ".lastIndexOf('b') == 1", ".split('').size() > 0")
			})
		}),
		expression("regular expressions", func(g *Gen) string {
			pattern := within(expressionLength-100, 1, func(int) string { return strconv.Quote(regex(g)) })
			text := pick(g, "object.data.k", "'"+strings.Repeat("a", 30)+"'", "string(object)")
			return pick(g, text+".matches("+pattern+")", text+".find("+pattern+") == ''", text+".findAll("+pattern+").size() > 0", "object.data.all(k, object.data[k].matches("+pattern+"))")
		}),
		expression("dynamic regular expressions", func(g *Gen) string {
			return pick(g, "object.data.k.matches(object.data.p)", "object.data.all(k, object.data.all(p, object.data[k].matches(object.data[p])))",
				fmt.Sprintf("lists.range(%d).all(i, object.data.k.matches('(a{' + string(i) + '}){1,9}'))", g.upTo(1, 900)),
				"object.data.k.matches(["+strconv.Quote(regex(g))+"].map(s, s + s)[0])")
		}),
		expression("list functions", func(g *Gen) string {
			list := celList(g, g.upTo(10, 10_000_000))
			return fill(pick(g, "%.sort().size() > 0", "%.distinct().size() > 0", "[%, %].flatten().size() > 0", "%.sortBy(x, x).size() > 0", "%.reverse() == %",
				"%.slice(0, 5).size() > 0", "%.sum() == 0", "%.max() == %.min()", "%.isSorted()", "%.indexOf(-1) == 0", "%.map(x, %).size() > 0", "%.all(x, x in %)", "% + % + % == []",
				"%.all(x, %.distinct().size() > 0)", "%.all(x, %.sort() == %)"), list)
		}),
		expression("sets", func(g *Gen) string {
			list := celList(g, g.upTo(10, 1_000_000))
			return fill(pick(g, "sets.contains(dyn(%), dyn(%))", "sets.equivalent(dyn(%), dyn(%))", "sets.intersects(dyn(%), [dyn('x')])", "%.all(x, sets.contains(dyn(%), dyn(%)))"), list)
		}),
		expression("values of libraries", func(g *Gen) string {
			digits := strings.Repeat("9", g.upTo(1, 3000))
			return pick(g,
				"quantity('"+digits+"').isInteger()", "quantity('1e"+digits+"').isInteger()", "isQuantity('1"+strings.Repeat("0", len(digits))+"Ei')",
				"quantity('1').add(quantity('1e-"+digits+"')).isInteger()", "semver('"+digits+".1.1').major() > 0", "isSemver('1.1.1-"+strings.Repeat("a.", len(digits)/2)+"a')",
				"url('https://"+strings.Repeat("a", len(digits))+"').getHost() == ''", "url('https://a?"+strings.Repeat("a=b&", len(digits)/4)+"').getQuery().size() > 0",
				"ip('"+strings.Repeat(":", len(digits))+"').family() == 4", "cidr('::/"+digits+"').containsIP('::1')", "isIP(object.data.k)", "isURL(object.data.k)",
				"double('"+digits+"') > 0.0", "int('"+digits+"') > 0", "timestamp('2000-01-01T00:00:00."+digits+"Z').getFullYear() > 0",
				"duration('"+digits+"h') > duration('1s')", "timestamp('2000-01-01T00:00:00Z').getHours('"+digits[:min(len(digits), 100)]+"') > 0",
				"format.dns1123Subdomain().validate(object.data.k).hasValue()", "base64.decode('"+digits+"') == b''", "base64.decode(object.data.k) == b''")
		}),
		expression("quantities that grow", func(g *Gen) string {
			start := "quantity('" + pick(g, "9", "1e10", "1e-9", "0.000000001", "1Ei") + "')"
			return within(expressionLength, g.upTo(1, 100), func(n int) string {
				return repeat(n, start, func(_ int, inner string) string { return "[" + inner + "].map(q, q.add(q))[0]" }) + ".isInteger()"
			})
		}),
		expression("huge literals", func(g *Gen) string {
			item := pick(g, "1", "'a'", "1.5", "true", "null", "b'a'", "1u", "{}", "[]", "{'a': 1}")
			return within(expressionLength, g.upTo(1, 2000), func(n int) string {
				return pick(g, "[", "dyn([") + each(n, ",", func(int) string { return item }) + "]" + "" + ".size() > 0"
			})
		}),
		expression("literals of mixed types", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 1000), func(n int) string {
				return "[" + each(n, ",", func(i int) string { return fmt.Sprintf("dyn({'k%d': [%d, {%d: 'a'}]})", i, i, i) }) + "].size() > 0"
			})
		}),
		expression("nesting", func(g *Gen) string {
			open := pick(g, "(|true|)", "[|1|].size() > 0", "{'a': |1|}.size() > 0", "!|true|", "-|1| < 0", "dyn(|true|)", "type(|1|) == type", "[[|1|]] == [[1]]", "string(|'a'|) == 'a'", "[|true|][0]", "{'a':|true|}.a")
			parts := strings.Split(open, "|")
			tail, rest, _ := strings.Cut(parts[2], " ")
			return within(expressionLength, g.upTo(1, 2000), func(n int) string {
				return strings.Repeat(parts[0], n) + parts[1] + strings.Repeat(tail, n) + " " + rest
			})
		}),
		expression("chains", func(g *Gen) string {
			link := pick(g, "true| && true", "false| || true", "1| + 1| > 0", "'a'| + 'a'| == ''", "object|.a| == 1", "object|['a']| == 1", "object|.?a|.hasValue()", "[1]| + [1]| == []", "1| - 1| < 1", "1| * 9| > 1",
				"true| ? true : true", "'a'|.lowerAscii()| == 'a'", "[1]|.reverse()| == []", "[[1]]|.flatten()| == []", "1| == 1", "true| || 1/0 > 0", "has(object.a)| && has(object.a.b)", "dyn(1)| + dyn(1)| > 1", "'a'|.replace('a', 'aa')| == ''", "'%s'|.format(['%s%s'])| == ''")
			parts := append(strings.Split(link, "|"), "", "")
			return within(expressionLength, g.upTo(1, 2000), func(n int) string { return parts[0] + strings.Repeat(parts[1], n) + parts[2] })
		}),
		expression("escapes", func(g *Gen) string {
			escape := pick(g, `\\`, `\u0041`, `\U0001F600`, `\x41`, `\101`, `\n`, `\u`, `\U00110000`, "\U0001F600", "\u202e", "a\u0301")
			quote := pick(g, `'`, `"`, `'''`, `"""`, `r'`, `b'`)
			return within(expressionLength, g.upTo(1, 4000), func(n int) string {
				return quote + strings.Repeat(escape, n) + strings.TrimLeft(quote, "rb") + " != " + quote + strings.TrimLeft(quote, "rb")
			})
		}),
		expression("whitespace and comments", func(g *Gen) string {
			return strings.Repeat(pick(g, " ", "\n", "\t", "// a\n", "//\u2028\n"), g.upTo(1, 4000)/4) + "true"
		}),
		expression("products over the object", func(g *Gen) string {
			depth := g.upTo(1, 6)
			condition := pick(g, "a != ''", "object.data[a] != 'x'", "string(object) != a", "object == object", "object.data[a].matches(object.data.p)", "a in object.data", "object.data[a].split('').size() >= 0")
			return repeat(depth, condition, func(i int, inner string) string { return "object.data.all(" + name(depth-1-i) + ", " + inner + ")" })
		}),
		expression("equality", func(g *Gen) string {
			return pick(g, "object == object", "[object, object] == [object, object]", fmt.Sprintf("lists.range(%d).all(i, object == object)", g.upTo(1, 100_000)),
				fmt.Sprintf("lists.range(%d) == lists.range(%d)", g.upTo(1, 10_000_000), g.upTo(1, 10_000_000)), "object in [object]", "[object.data].map(d, [d, d] + [d, d]) == [[object.data]]")
		}),
		expression("errors that are absorbed", func(g *Gen) string {
			inner := pick(g, "1 / 0 > 0", "object.nothing == 1", "[][0] == 1", "'a'.matches('(')", "int('x') > 0", "lists.range(-1).size() > 0", "dyn('a') > 1")
			return fmt.Sprintf("lists.range(%d).exists(i, %s)", g.upTo(1, 1_000_000), inner) + " || " + fmt.Sprintf("object.data.exists(k, object.data.exists(l, %s))", inner)
		}),
		expression("errors with long messages", func(g *Gen) string {
			return pick(g, "object.data.k == undeclared", "int(object.data.k) > 0", "timestamp(object.data.k) > timestamp(object.data.k)", strings.Repeat("a.", g.upTo(1, 1000))+"b", strings.Repeat("f(", g.upTo(1, 1000)), strings.Repeat("$ ", g.upTo(1, 1900)), strings.Repeat("a b ", g.upTo(1, 900)))
		}),
		expression("random expressions", func(g *Gen) string {
			return within(expressionLength, g.upTo(1, 8), func(depth int) string { return celGrammar(g, depth) })
		}),
		{"cel", "many expressions", celMany},
		{"cel", "many long expressions", func(g *Gen) Input {
			var out []string
			long := "object.data.all(k, " + strings.Repeat("k != '' && ", 300) + "true)"
			for range g.upTo(1, 700) {
				out = append(out, long[:len(long)-1]+" && "+strconv.Itoa(len(out))+" >= 0)")
			}
			return celRule(g, out...)
		}},
	}
}
