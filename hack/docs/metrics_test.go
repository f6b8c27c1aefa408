package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// instrument is a metric that the code defines.
type instrument struct {
	kind   string
	labels []string
	help   string
}

// row returns the line of a metric in the table of docs/metrics.md, without its last column.
func (i instrument) row(name string) string {
	labels := "–"
	if len(i.labels) > 0 {
		labels = "`" + strings.Join(i.labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |", name, i.kind, labels)
}

// instruments returns the metrics that the packages define with component-base/metrics, by name.
func instruments(t *testing.T) map[string]instrument {
	t.Helper()
	found := map[string]instrument{}
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() == "generated" || entry.Name() == "testdata" {
			return err
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		constants := map[string]string{}
		var parsed []*ast.File
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			parsed = append(parsed, tree)
			ast.Inspect(tree, func(node ast.Node) bool {
				if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
					for i, name := range spec.Names {
						if value, ok := text(spec.Values[i], nil); ok {
							constants[name.Name] = value
						}
					}
				}
				return true
			})
		}
		for _, tree := range parsed {
			ast.Inspect(tree, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					define(t, call, constants, found)
				}
				return true
			})
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("instruments() = %d metrics, %v, want some and no error", len(found), err)
	}
	return found
}

// define adds the metric that a call such as metrics.NewCounterVec(&metrics.CounterOpts{…}, []string{…}) or
// metrics.NewDesc(…) creates.
func define(t *testing.T, call *ast.CallExpr, constants map[string]string, found map[string]instrument) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	if of, ok := function.X.(*ast.Ident); !ok || of.Name != "metrics" || !strings.HasPrefix(function.Sel.Name, "New") {
		return
	}
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(function.Sel.Name, "New"), "Vec"))
	if kind == "desc" && len(call.Args) > 2 {
		name, _ := text(call.Args[0], constants)
		help, _ := text(call.Args[1], constants)
		found[name] = instrument{kind: "gauge", labels: texts(call.Args[2], constants), help: help}
		return
	}
	options, ok := call.Args[0].(*ast.UnaryExpr)
	if !ok {
		return
	}
	literal, ok := options.X.(*ast.CompositeLit)
	if !ok {
		return
	}
	fields := map[string]string{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			fields[pair.Key.(*ast.Ident).Name], _ = text(pair.Value, constants)
		}
	}
	if fields["Name"] == "" {
		t.Errorf("the name of a metric %s is not a constant of its package, want one", kind)
		return
	}
	parts := slices.DeleteFunc([]string{fields["Namespace"], fields["Subsystem"], fields["Name"]}, func(part string) bool { return part == "" })
	metric := instrument{kind: kind, help: fields["Help"]}
	if len(call.Args) > 1 {
		metric.labels = texts(call.Args[1], constants)
	}
	found[strings.Join(parts, "_")] = metric
}

// text returns the value of a string expression of literals and constants.
func text(expression ast.Expr, constants map[string]string) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		value, ok := constants[e.Name]
		return value, ok
	case *ast.BinaryExpr:
		left, leftOK := text(e.X, constants)
		right, rightOK := text(e.Y, constants)
		return left + right, leftOK && rightOK
	}
	return "", false
}

func texts(expression ast.Expr, constants map[string]string) []string {
	literal, ok := expression.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var values []string
	for _, element := range literal.Elts {
		value, _ := text(element, constants)
		values = append(values, value)
	}
	return values
}

var metricRow = regexp.MustCompile("(?m)^(\\| `([a-z_]+)` \\| (?:counter|gauge|histogram) \\| [^|]* \\|)")

// TestMetrics checks that docs/metrics.md lists each metric of the programs with its type and its labels.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, match := range metricRow.FindAllStringSubmatch(string(page), -1) {
		documented[match[2]] = match[1]
	}
	defined := instruments(t)
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		if want := defined[name].row(name); documented[name] != want {
			t.Errorf("docs/metrics.md: row of %s = %q, want %q; its help is %q", name, documented[name], want, defined[name].help)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/metrics.md has a row for %s, want none: no package defines it", name)
	}
}
