package provenance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/provenance"
)

var (
	key     = regexp.MustCompile(`^([a-z0-9-]+\.)*open-cluster-management\.io/[A-Za-z0-9._-]*$`)
	version = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]+)?$`)
)

// others are strings of the form of a key that no object contains.
var others = sets.New(
	"executor.work.open-cluster-management.io/decision", // annotations of audit events
	"executor.work.open-cluster-management.io/reason",
	"open-cluster-management.io/hub-apiserver",   // the name of the tracer
	"migration.open-cluster-management.io/probe", // a value that a dry run writes
)

// code contains the strings of the product's code that can be facts.
type code struct {
	keys, conditions, statuses map[string]token.Position
}

// readCode parses everything that is built into the programs.
func readCode(t *testing.T) code {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, root := range []string{"../../../pkg", "../../../cmd"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch name := entry.Name(); {
			case err != nil:
				return err
			case entry.IsDir() && (name == "generated" || name == "testdata" || name == "provenance"):
				return fs.SkipDir
			case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "zz_"):
				return nil
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			parsed = append(parsed, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	constants := map[string][]string{}
	for _, file := range parsed {
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.ValueSpec); ok {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						if value, ok := text(spec.Values[i]); ok {
							constants[name.Name] = append(constants[name.Name], value)
						}
					}
				}
			}
			return true
		})
	}
	found := code{map[string]token.Position{}, map[string]token.Position{}, map[string]token.Position{}}
	for _, file := range parsed {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BasicLit:
				if value, ok := text(node); ok && key.MatchString(value) && !version.MatchString(value) && !others.Has(value) {
					found.keys[value] = files.Position(node.Pos())
				}
			case *ast.CallExpr:
				if called, ok := node.Fun.(*ast.SelectorExpr); ok && len(node.Args) > 1 &&
					(called.Sel.Name == "FindStatusCondition" || strings.HasPrefix(called.Sel.Name, "IsStatusCondition")) {
					name := nameOf(node.Args[1])
					if _, local := node.Args[1].(*ast.Ident); local && !strings.Contains(name, "ondition") {
						return true // a variable
					}
					for _, value := range constants[name] {
						found.conditions[value] = files.Position(node.Pos())
					}
				}
			case *ast.KeyValueExpr:
				if nameOf(node.Key) == "ServerStatus" {
					if value, ok := text(node.Value); ok {
						found.statuses[value] = files.Position(node.Pos())
					}
				}
			}
			return true
		})
	}
	return found
}

func text(node ast.Expr) (string, bool) {
	literal, ok := node.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

func nameOf(node ast.Expr) string {
	switch node := node.(type) {
	case *ast.Ident:
		return node.Name
	case *ast.SelectorExpr:
		return node.Sel.Name
	}
	return ""
}

// TestComplete checks that the table contains each key of our groups, each condition and each part of a status that only
// the server writes, as far as the code names them, and nothing else.
func TestComplete(t *testing.T) {
	found := readCode(t)
	if len(found.keys) < 40 || len(found.conditions) < 15 || len(found.statuses) < 4 {
		t.Fatalf("readCode() = %d keys, %d conditions, %d parts of a status, want those of the product", len(found.keys), len(found.conditions), len(found.statuses))
	}
	listed := map[provenance.Part]sets.Set[string]{}
	for _, fact := range provenance.Facts {
		if listed[fact.Part] == nil {
			listed[fact.Part] = sets.New[string]()
		}
		listed[fact.Part].Insert(fact.Key)
	}
	inMetadata := sets.New[string]()
	for part, keys := range listed {
		if part != provenance.Condition && part != provenance.Status {
			inMetadata = inMetadata.Union(keys)
		}
	}
	compare := func(what string, code map[string]token.Position, table sets.Set[string]) {
		for value, at := range code {
			if !table.Has(value) {
				t.Errorf("%s: %s %q is not in provenance.Facts, want a row that says who may write it", at, what, value)
			}
		}
	}
	compare("key", found.keys, inMetadata)
	compare("condition", found.conditions, listed[provenance.Condition])
	compare("part of a status", found.statuses, listed[provenance.Status])
	for _, value := range sets.List(inMetadata) {
		if _, used := found.keys[value]; !used && value != "eks-managed-cluster-arn" {
			t.Errorf("provenance.Facts lists key %q, want only keys that the code reads", value)
		}
	}
}

// TestFacts checks that each row is whole.
func TestFacts(t *testing.T) {
	seen := sets.New[string]()
	for _, fact := range provenance.Facts {
		id := strings.Join([]string{fact.Kind.String(), string(fact.Part), fact.Key}, " ")
		if seen.Has(id) {
			t.Errorf("provenance.Facts contains %s twice", id)
		}
		seen.Insert(id)
		if fact.Read == "" {
			t.Errorf("%s: Read is empty, want what the value decides", id)
		}
		server := fact.Writer == provenance.Server || fact.Writer == provenance.Import
		if server != (fact.OnCRDs != "") {
			t.Errorf("%s: OnCRDs = %q, want what protects it there if and only if the server writes it", id, fact.OnCRDs)
		}
		if server && !slices.Contains([]provenance.Part{provenance.Label, provenance.Annotation, provenance.Condition, provenance.Status}, fact.Part) {
			t.Errorf("%s: the stores do not protect a %s", id, fact.Part)
		}
	}
}
