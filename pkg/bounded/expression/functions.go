package expression

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/operators"
)

const (
	// maxRange bounds the lists of lists.range.
	maxRange = 1000
	// maxPattern bounds regular expressions in bytes, maxStates in states.
	maxPattern, maxStates = 512, 2000
)

// function bounds the results and the cost of a function.
type function struct {
	// least and most bound the number of arguments, including the target of a method.
	least, most int
	bound       func([]value) (value, float64, error)
}

// functions contains all functions that expressions may call.
var functions = map[string]function{}

func init() {
	register := func(least, most int, bound func([]value) (value, float64, error), names ...string) {
		for _, name := range names {
			functions[name] = function{least, most, bound}
		}
	}
	// Each of these traverses its arguments at most twice.
	register(1, 3, toScalar,
		operators.LogicalNot, operators.Negate, operators.LogicalAnd, operators.LogicalOr, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo,
		operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In, operators.OldIn,
		"size", "contains", "startsWith", "endsWith", "hasConditions", "hasValue",
		"int", "uint", "double", "bool", "timestamp", "duration",
		"isURL", "isIP", "isCIDR", "isQuantity", "isSemver", "isInteger", "isCanonical", "ip.isCanonical", "isSorted", "sum",
		"sign", "asInteger", "asApproximateFloat", "compareTo", "isGreaterThan", "isLessThan", "major", "minor", "patch",
		"family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "containsIP", "containsCIDR", "prefixLength")
	register(1, 2, atTime,
		"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds")
	register(1, 4, toText(1), "string", "bytes", "charAt", "lowerAscii", "upperAscii", "trim", "substring", "quantity", "add", "sub", "semver", "ip", "cidr", "masked",
		"getHost", "getHostname", "getPort", "getScheme", "base64.decode")
	register(1, 1, toText(2), "base64.encode")
	register(1, 1, toText(4), "url", "getEscapedPath")
	register(1, 1, toText(10), "strings.quote", "json.encode")
	register(1, 1, query, "getQuery")
	register(1, 2, toSame, "reverse", "slice", "first", "last", "min", "max", "dyn", "optional.ofNonZeroValue", "value", "unwrapOpt", "optional.unwrap")
	register(3, 3, toSame, "slice")
	register(1, 1, typed, "type", "optional.of")
	register(0, 0, typedNone, "optional.none")
	register(2, 2, alternative, "or", "orValue")
	register(2, 2, selected, operators.Index)
	register(2, 2, selectedOptional, operators.OptIndex, operators.OptSelect)
	register(3, 3, chosen, operators.Conditional)
	register(2, 2, concatenated, operators.Add)
	register(2, 3, found, "indexOf", "lastIndexOf")
	register(3, 4, replaced, "replace")
	register(2, 3, split, "split")
	register(1, 2, joined, "join")
	register(2, 2, formatted, "format")
	register(2, 3, matched, "matches", "find", "findAll")
	register(1, 1, ranged, "lists.range")
	register(1, 2, flattened, "flatten")
	register(1, 1, pairs, "distinct")
	register(1, 1, sorted, "sort")
	register(2, 2, setOf, "sets.contains", "sets.equivalent", "sets.intersects")
	register(1, 1, toText(1), "format.named")
	register(0, 0, typedNone,
		"format.byte", "format.date", "format.datetime", "format.dns1035Label", "format.dns1035LabelPrefix", "format.dns1123Label", "format.dns1123LabelPrefix",
		"format.dns1123Subdomain", "format.dns1123SubdomainPrefix", "format.labelValue", "format.qualifiedName", "format.uri", "format.uuid")
	register(2, 2, validated, "validate")
}

func traversal(values []value) float64 {
	total := 0.0
	for _, v := range values {
		total += v.traversal()
	}
	return total
}

func toScalar(args []value) (value, float64, error) { return scalar, 2 * traversal(args), nil }

// atTime bounds a part of a time. If a time zone is given, the evaluation reads the time zone file.
func atTime(args []value) (value, float64, error) {
	return scalar, 2*traversal(args) + 1000*float64(len(args)-1), nil
}

// toText bounds a string that is at most factor times as long as the arguments.
func toText(factor float64) func([]value) (value, float64, error) {
	return func(args []value) (value, float64, error) {
		size := 0.0
		for _, arg := range args {
			size += arg.size
		}
		out := text(factor*16*size + scalar.bytes())
		return out, factor*traversal(args) + out.size, nil
	}
}

func toSame(args []value) (value, float64, error) {
	out := args[0]
	out.literal = nil
	return out, traversal(args), nil
}

func typed(args []value) (value, float64, error) {
	out := args[0]
	out.types, out.literal = out.types+1, nil
	return out, 0, nil
}

func typedNone([]value) (value, float64, error) {
	out := scalar
	out.types = 2
	return out, 0, nil
}

func alternative(args []value) (value, float64, error) { return either(args[0], args[1]), 0, nil }

func chosen(args []value) (value, float64, error) { return either(args[1], args[2]), 0, nil }

func selected(args []value) (value, float64, error) {
	out := args[0]
	out.literal, out.atom = nil, false
	return out, args[1].traversal() + args[0].hops, nil
}

// selectedOptional bounds an optional value. Selecting from an optional value does not nest optionals.
func selectedOptional(args []value) (value, float64, error) {
	out, steps, err := selected(args)
	out.types = max(2, out.types)
	return out, steps, err
}

func concatenated(args []value) (value, float64, error) {
	a, b := args[0], args[1]
	out := value{
		size: a.size + b.size, width: a.width + b.width, hops: max(a.hops, b.hops), types: max(a.types, b.types),
		atom: a.atom || b.atom,
	}
	if !out.atom {
		out.hops++
	}
	return out, out.size, nil
}

func found(args []value) (value, float64, error) {
	// Strings are searched at every position, lists once.
	return scalar, 2*traversal(args) + args[0].bytes()*args[1].bytes()/64, nil
}

// length bounds the length of a value as a string. It is exact for literals.
func length(v value) float64 {
	if literal, ok := v.literal.(string); ok {
		return float64(len(literal))
	}
	return v.bytes()
}

func replaced(args []value) (value, float64, error) {
	times := args[0].bytes() + 1
	if old, ok := args[1].literal.(string); ok && old != "" {
		times = args[0].bytes() / float64(len(old))
	}
	out := text(args[0].bytes() + times*length(args[2]))
	return out, traversal(args) + out.size + args[0].bytes()/16, nil
}

func split(args []value) (value, float64, error) {
	characters := args[0].bytes()
	out := value{size: 1 + characters*(1+1.0/16), width: characters + 1, types: 2}
	return out, traversal(args) + out.size, nil
}

func query(args []value) (value, float64, error) {
	out, steps, err := split(args)
	out.size, out.types = 2*out.size, 4
	return out, 4 * steps, err
}

func joined(args []value) (value, float64, error) {
	separator := 0.0
	if len(args) > 1 {
		separator = length(args[1])
	}
	out := text(args[0].bytes() + args[0].width*separator)
	return out, traversal(args) + out.size, nil
}

var precision = regexp.MustCompile(`\.[0-9]{3,}`)

func formatted(args []value) (value, float64, error) {
	template, ok := args[0].literal.(string)
	if !ok {
		return value{}, 0, errors.New("the template must be a string literal")
	}
	if precision.MatchString(template) {
		return value{}, 0, errors.New("the precision of a number must have at most two digits")
	}
	// A number has less than 512 bytes, a quoted value up to ten times its size.
	out := text(float64(len(template)) + 512*float64(strings.Count(template, "%")) + 10*args[1].bytes())
	return out, 10*traversal(args) + out.size, nil
}

func matched(args []value) (value, float64, error) {
	pattern, ok := args[1].literal.(string)
	if !ok {
		return value{}, 0, errors.New("the pattern must be a string literal")
	}
	states, err := statesOf(pattern)
	if err != nil {
		return value{}, 0, err
	}
	// Each call compiles the pattern. Matching visits each state for each byte.
	steps := 2*traversal(args) + 20*states + args[0].bytes()*states/10
	return value{size: 1 + 2*args[0].bytes(), width: 1 + args[0].bytes(), types: 2}, steps, nil
}

// statesOf bounds the states of a regular expression without compiling it, since short patterns
// such as a{1000}{1000} have many states.
func statesOf(pattern string) (float64, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the pattern must be no more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the pattern is not a valid regular expression: %w", err)
	}
	states := countStates(parsed)
	if states > maxStates {
		return 0, fmt.Errorf("the pattern must have at most %d states, found up to %.3g", maxStates, states)
	}
	return states, nil
}

func countStates(node *syntax.Regexp) float64 {
	states := 2 + float64(len(node.Rune))/2
	for _, sub := range node.Sub {
		states += countStates(sub)
	}
	if node.Op == syntax.OpRepeat {
		states *= float64(max(node.Min, node.Max, 1))
	}
	return states
}

func ranged(args []value) (value, float64, error) {
	n, ok := args[0].literal.(int64)
	if !ok || n > maxRange {
		return value{}, 0, fmt.Errorf("the length must be an integer literal of at most %d", maxRange)
	}
	entries := float64(max(n, 0))
	return value{size: 1 + entries, width: entries, types: 2}, entries, nil
}

func flattened(args []value) (value, float64, error) {
	out := args[0]
	out.width, out.hops, out.literal = out.size, 0, nil
	return out, 2 * traversal(args), nil
}

// pairs bounds a comparison of each entry with each other.
func pairs(args []value) (value, float64, error) {
	return args[0], (1 + args[0].width) * args[0].traversal(), nil
}

func sorted(args []value) (value, float64, error) {
	return args[0], 2 * math.Log2(args[0].width+2) * args[0].traversal(), nil
}

func setOf(args []value) (value, float64, error) {
	a, b := args[0], args[1]
	return scalar, 2 * ((1+a.width)*b.traversal() + (1+b.width)*a.traversal()), nil
}

// validated bounds a list of validation errors of a string.
func validated(args []value) (value, float64, error) {
	out := value{size: 10 * (args[0].size + args[1].size), width: 10, types: 3}
	return out, 20*traversal(args) + out.size, nil
}
