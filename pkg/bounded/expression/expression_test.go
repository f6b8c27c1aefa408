package expression

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

func nested(open, inner, shut string, times int) string {
	return strings.Repeat(open, times) + inner + strings.Repeat(shut, times)
}

// TestCompileRejectsUnbounded has a case for each construct that could take unbounded time or
// memory. The value is part of the error.
func TestCompileRejectsUnbounded(t *testing.T) {
	for expression, want := range map[string]string{
		// The type checker.
		`[1]` + strings.Repeat(`.map(k, {k: k})`, 20) + `.size() > 0`:   "nested types",
		`[[1]]` + strings.Repeat(`.map(x, [x, x])`, 20) + `.size() > 0`: "nested types",
		"[" + strings.Repeat("{},", 400) + "].size() > 0":               "empty lists and maps",
		strings.Repeat("1 == 1 || ", 300) + "true":                      "parts",
		nested("[", "1", "]", 200) + " == []":                           "recursion limit",
		nested("[1].map(k, ", "k", ")", 10) + ".size() > 0":             "nest at most",
		// Macros that copy their target.
		`optional.of(1)` + strings.Repeat(`.optMap(x, x + 1)`, 30) + `.hasValue()`: "parts",
		// Values that share parts, or are concatenated without a copy.
		`[object.a]` + strings.Repeat(`.map(x, x + x)`, 11) + `.exists(x, 2 in x)`:           "too expensive",
		`["a"]` + strings.Repeat(`.map(x, x.replace("a", "aaaaaaaa"))`, 20) + ` == []`:       "too expensive",
		`["a"]` + strings.Repeat(`.map(x, [x, x, x, x, x, x, x, x].join(x))`, 15) + ` == []`: "too expensive",
		// Loops.
		`lists.range(1000).all(i, lists.range(1000).all(k, k >= 0))`:                      "too expensive",
		`object.a.all(a, object.b.all(b, object.c.all(c, object.d.all(d, a+b+c+d > 0))))`: "too expensive",
		// Functions with a cost that depends on the value of a number, or on two strings.
		`lists.range(1000000000).size() > 0`:           "integer literal of at most",
		`lists.range(object.spec.replicas).size() > 0`: "integer literal of at most",
		`"%.1000000f".format([1.0]) == ""`:             "precision",
		`object.a.format([1]) == ""`:                   "string literal",
		`object.a.replace("", object.a) == ""`:         "too expensive",
		`object.a.split("").join(object.a) == ""`:      "too expensive",
		// Regular expressions.
		`object.a.matches(object.b)`:                              "string literal",
		`object.a.matches("(([a-z]{30}){30}x{900}){1}")`:          "states",
		`object.a.find("` + strings.Repeat("a", 600) + `") == ""`: "no more than 512 bytes",
		// Unknown names.
		`[1].map(x, __result__).size() > 0`:      "undeclared reference",
		`[1].map(x, @result).size() > 0`:         "Syntax error",
		`env.PATH == ""`:                         "undeclared reference",
		`exec("ls") == ""`:                       "undeclared reference",
		`google.protobuf.Struct{} == {}`:         "must not construct",
		strings.Repeat("a", bounded.MaxLength+1): "no more than",
	} {
		_, err := Compile(expression, cel.BoolType)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile(%.80s) = %v, want an error with %q", expression, err, want)
		}
	}
}

// The limits are far above the cost of common rules.
func TestCompileAcceptsCommonRules(t *testing.T) {
	for _, expression := range []string{
		`object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`,
		`hasConditions(object.status) ? object.status.conditions.filter(c, c.type == 'Ready').exists(c, c.status == 'True') : false`,
		`object.spec.containers.all(c, object.status.containerStatuses.exists(s, s.name == c.name && s.ready))`,
		`has(object.status.readyReplicas) && object.status.readyReplicas == object.spec.replicas`,
		`object.?status.?phase.orValue("") in ["Running", "Succeeded"]`,
		`quantity(object.status.capacity.storage).isGreaterThan(quantity("10Gi"))`,
		`semver(object.status.version).isGreaterThan(semver("1.0.0"))`,
		`object.metadata.name.matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")`,
		`object.metadata.labels.all(k, k.startsWith("app.") || object.metadata.labels[k] != "")`,
		`object.status.items.map(i, i.name).sort() == object.spec.names`,
		`object.status.items.sortBy(i, i.name)[0].ready && sets.contains(object.spec.names, ["a", "b"])`,
		`object.spec.text.split(",").all(x, x.trim().startsWith("b"))`,
		`"%d of %d".format([object.status.ready, object.spec.replicas]) == "1 of 1"`,
		`lists.range(100).all(i, lists.range(100).all(j, i <= j + 100))`,
		`timestamp(object.metadata.creationTimestamp).getFullYear() > 2000 && duration("1h") < duration("2h")`,
		`isURL(object.spec.url) && url(object.spec.url).getHost() != "" && ip("10.0.0.1").isLoopback() == false`,
		`format.dns1123Label().validate(object.metadata.name).hasValue() == false`,
	} {
		if _, err := Compile(expression, cel.BoolType); err != nil {
			t.Errorf("Compile(%s) = %v, want no error", expression, err)
		}
	}
}

// TestSpellings checks that a field whose name has dots can be named as in CEL and as in kubectl.
func TestSpellings(t *testing.T) {
	object := map[string]any{"data": map[string]any{"requests.cpu": "4", "a:b": "5"}}
	for _, text := range []string{
		`object.data['requests.cpu'] == "4"`, `object.data.requests\.cpu == "4"`, "object.data.`requests.cpu` == \"4\"",
		`has(object.data.requests\.cpu) && !has(object.data.limits\.cpu)`, `object.data.a\:b == "5"`,
	} {
		compiled, err := Compile(text, cel.BoolType)
		if err != nil {
			t.Errorf("Compile(%s) = %v, want no error", text, err)
			continue
		}
		if got, err := compiled.Evaluate(t.Context(), bounded.NewBudget(), map[string]any{Object: object}, bounded.ExtentOf(object)); got != true || err != nil {
			t.Errorf("Evaluate(%s) = %v, %v, want true", text, got, err)
		}
	}
}

func TestCompileChecksResultType(t *testing.T) {
	for expression, want := range map[string]bool{"true": true, "object.a": true, "1": false, `"a"`: false} {
		if _, err := Compile(expression, cel.BoolType); (err == nil) != want {
			t.Errorf("Compile(%s) = %v, want success %v", expression, err, want)
		}
	}
}

// An expression is evaluated for an ordinary object and rejected for a large one.
func TestEvaluateDependsOnExtent(t *testing.T) {
	e, err := Compile(`object.a.all(x, object.a.all(y, x + y >= 0))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	for length, want := range map[int]bool{10: true, 5000: false} {
		var list []any
		for i := range length {
			list = append(list, int64(i))
		}
		object := map[string]any{"a": list}
		got, err := e.Evaluate(t.Context(), bounded.NewBudget(), map[string]any{Object: object}, bounded.ExtentOf(object))
		if want && (err != nil || got != true) || !want && !errors.Is(err, bounded.ErrTooExpensive) {
			t.Errorf("Evaluate() for %d entries = %v, %v, want success %v", length, got, err, want)
		}
	}
}

func TestEvaluateSpendsBudget(t *testing.T) {
	e, err := Compile(`lists.range(100).all(i, lists.range(100).all(j, i <= j + 100))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	budget, evaluated := bounded.NewBudget(), 0
	for range 1000 {
		if _, err := e.Evaluate(t.Context(), budget, map[string]any{Object: map[string]any{}}, bounded.Extent{}); err != nil {
			if !errors.Is(err, bounded.ErrTooExpensive) || !strings.Contains(err.Error(), "in total") {
				t.Errorf("Evaluate() = %v, want bounded.ErrTooExpensive", err)
			}
			continue
		}
		evaluated++
	}
	if evaluated == 0 || evaluated == 1000 {
		t.Errorf("evaluations within the budget of a pass = %d, want more than 0 and less than 1000", evaluated)
	}
}

// The parser of quantities would not terminate for these strings.
func TestQuantitiesAreBounded(t *testing.T) {
	object := map[string]any{"q": "1e-2147483647", "huge": "1e1000000000", "long": strings.Repeat("9", 100_000), "fine": "1.5Gi"}
	for expression, want := range map[string]bool{
		`quantity(object.q).isInteger()`:                         false,
		`isQuantity(object.huge)`:                                false,
		`quantity(object.long).isGreaterThan(quantity("1"))`:     false,
		`quantity("1e-999999999").isGreaterThan(quantity("1"))`:  false,
		`quantity(object.fine).isGreaterThan(quantity("1.4e9"))`: true,
		`isQuantity(object.fine) && !isQuantity("a")`:            true,
	} {
		e, err := Compile(expression, cel.BoolType)
		if err != nil {
			t.Errorf("Compile(%s) = %v, want no error", expression, err)
			continue
		}
		got, err := e.Evaluate(t.Context(), bounded.NewBudget(), map[string]any{Object: object}, bounded.ExtentOf(object))
		if want != (err == nil && got == true) {
			t.Errorf("Evaluate(%s) = %v, %v, want success %v", expression, got, err, want)
		}
	}
}

// sizeOf returns the size of a value in steps, as in bounded.Extent. Shared parts count each time
// that they occur.
func sizeOf(v ref.Val) float64 {
	switch v := v.(type) {
	case types.String:
		return 1 + float64(len(v))/16
	case types.Bytes:
		return 1 + float64(len(v))/16
	case *types.Optional:
		if !v.HasValue() {
			return 1
		}
		return sizeOf(v.GetValue())
	case traits.Mapper:
		size := 1.0
		for keys := v.Iterator(); keys.HasNext() == types.True; {
			key := keys.Next()
			size += sizeOf(key) + sizeOf(v.Get(key))
		}
		return size
	case traits.Lister:
		size := 1.0
		for entries := v.Iterator(); entries.HasNext() == types.True; {
			size += sizeOf(entries.Next())
		}
		return size
	}
	return 1
}

// writer generates random expressions.
type writer struct {
	*rand.Rand
	loops int
}

func (w *writer) pick(options ...string) string { return options[w.IntN(len(options))] }

func (w *writer) expression(depth int) string {
	if depth == 0 {
		leaves := []string{"object", "object.list", "object.text", "object.map", "object.lists", `"abc"`, `"a"`, "1", "[1, 2, 3]", `["a", "bb"]`, `{"a": 1}`, "object.list[0]"}
		for i := range w.loops {
			leaves = append(leaves, fmt.Sprintf("v%d", i), fmt.Sprintf("v%d", i))
		}
		return w.pick(leaves...)
	}
	a, b := w.expression(depth-1), w.expression(w.IntN(depth))
	switch w.IntN(26) {
	case 0, 1, 2, 3:
		v := fmt.Sprintf("v%d", w.loops)
		w.loops++
		body := w.expression(w.IntN(depth + 1))
		w.loops--
		return fmt.Sprintf("%s.%s(%s, %s)", a, w.pick("map", "map", "map", "filter"), v, body)
	case 4, 5, 6:
		return fmt.Sprintf("(%s + %s)", a, b)
	case 7, 8:
		return fmt.Sprintf("[%s, %s]", a, b)
	case 9:
		return fmt.Sprintf(`{"a": %s, "b": %s}`, a, b)
	case 10:
		return fmt.Sprintf("%s.replace(%s, %s)", a, w.pick(`""`, `"a"`, b), b)
	case 11:
		return fmt.Sprintf("%s.join(%s)", a, b)
	case 12:
		return fmt.Sprintf("%s.split(%s)", a, w.pick(`""`, `","`))
	case 13:
		return fmt.Sprintf(`"%%s-%%s".format([%s, %s])`, a, b)
	case 14:
		return fmt.Sprintf("%s.%s", a, w.pick("flatten()", "reverse()", "distinct()", "upperAscii()", "slice(0, 1)", "sort()", "first()", "sum()", "max()"))
	case 15:
		return fmt.Sprintf("%s(%s)", w.pick("json.encode", "strings.quote", "string", "dyn", "optional.of", "base64.encode", "bytes", "type", "size"), a)
	case 16:
		return fmt.Sprintf("(true ? %s : %s)", a, b)
	case 17:
		return fmt.Sprintf("optional.of(%s).optMap(o, %s).value()", a, w.pick("o", "[o, o]", "o + o"))
	case 18:
		return fmt.Sprintf(`%s.findAll("[a-c]")`, a)
	case 19:
		return fmt.Sprintf("%s.sortBy(s, s)", a)
	case 20:
		return fmt.Sprintf("lists.range(%d).map(r, %s)", w.IntN(20), a)
	default:
		return a
	}
}

// TestBoundsHold evaluates random expressions. No value may exceed the bound of the analysis.
func TestBoundsHold(t *testing.T) {
	list := make([]any, 30)
	for i := range list {
		list[i] = int64(i)
	}
	object := map[string]any{
		"list": list, "text": strings.Repeat("a,b\x00\"é", 40),
		"map":   map[string]any{"a": "x", "long key that counts": []any{"y", "z"}},
		"lists": []any{list[:10], []any{"a", []any{"b"}}, []any{}},
	}
	of := bounded.ExtentOf(object)
	w := &writer{Rand: seed.Rand(t)}
	evaluated, rejected := 0, 0
	for range 4_000 {
		text := "dyn(" + w.expression(1+w.IntN(5)) + ")"
		e, err := Compile(text, cel.AnyType)
		if err != nil {
			rejected++
			continue
		}
		steps, err := e.Steps(of)
		if err != nil || steps > bounded.ExpressionSteps {
			rejected++
			continue
		}
		a := &analysis{object: value{size: of.Size(), width: float64(of.Width), types: 1}}
		bound, _ := a.expr(e.plain)
		if a.err != nil {
			t.Fatal(a.err)
		}
		out, _, err := e.program.Eval(map[string]any{Object: object, Result: true})
		if err != nil {
			continue
		}
		evaluated++
		if got := sizeOf(out); got > bound.size {
			t.Errorf("size of the value of %s = %.0f, want at most %.0f", text, got, bound.size)
		}
	}
	if evaluated < 400 {
		t.Errorf("evaluated expressions = %d of 4000 with %d rejected, want at least 400", evaluated, rejected)
	}
}

// FuzzCompile searches for expressions for which the compiler does not terminate, or that are
// accepted and cannot be evaluated.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`object.status.conditions.exists(c, c.type == "Ready")`, `[1].map(x, {x: x})`, `"%s".format([object])`, `object.?a[?0].orValue(1)`,
		`[[1]].map(x, x + x)`, `optional.of(1).optMap(x, x)`, `quantity("1e9")`, `"a".matches("[a-z]{3}")`, `lists.range(3)`,
	} {
		f.Add(seed)
	}
	object := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}}, "a": []any{int64(1), "b"}}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Compile(text, cel.AnyType)
		if err != nil {
			return
		}
		_, _ = e.Evaluate(t.Context(), bounded.NewBudget(), map[string]any{Object: object, Result: true}, bounded.ExtentOf(object))
	})
}
