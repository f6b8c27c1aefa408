package fakeaws_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sdkModel is the model of one AWS service in the generated source of the AWS SDK.
type sdkModel struct {
	service string
	// functions are the functions of the service's package, by name.
	functions map[string]*ast.FuncDecl
	// required are the members that the documentation of a structure marks as required, by
	// the name of the structure. Every structure has an entry.
	required map[string][]string
	// errorCodes are all error codes of the service. labels are the request members that are
	// elements of the path, as <shape>.<member>.
	errorCodes, labels map[string]bool
}

// readSDK parses the source of a service of the AWS SDK.
func readSDK(t *testing.T, service string) *sdkModel {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/"+service).Output()
	if err != nil {
		t.Fatalf("go list of the SDK's module for %s: %v", service, err)
	}
	model := &sdkModel{
		service: service, functions: map[string]*ast.FuncDecl{}, required: map[string][]string{},
		errorCodes: map[string]bool{}, labels: map[string]bool{},
	}
	for _, folder := range []string{"", "types", "schemas"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), folder, "*.go"))
		succeed(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			succeed(t, err)
			model.add(file, folder)
		}
	}
	if len(model.functions) == 0 || len(model.errorCodes) == 0 {
		t.Fatalf("the SDK source of %s has %d functions and %d error codes, want more than 0", service, len(model.functions), len(model.errorCodes))
	}
	return model
}

func (s *sdkModel) add(file *ast.File, folder string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			switch {
			case folder == "" && decl.Recv == nil:
				s.functions[decl.Name.Name] = decl
			case folder == "types" && decl.Name.Name == "ErrorCode":
				// The method returns the code as a literal, unless the error overrides it.
				for _, literal := range literals(decl.Body) {
					s.errorCodes[literal] = true
				}
			case folder == "schemas":
				s.addLabels(decl)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					s.addStruct(spec)
				}
			}
		}
	}
}

func (s *sdkModel) addStruct(spec *ast.TypeSpec) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	s.required[spec.Name.Name] = []string{}
	for _, field := range structure.Fields.List {
		if len(field.Names) == 1 && strings.Contains(field.Doc.Text(), "This member is required.") {
			s.required[spec.Name.Name] = append(s.required[spec.Name.Name], field.Names[0].Name)
		}
	}
}

// addLabels adds the members in calls <shape>.AddMember("<member>", ..., &smithytraits.HTTPLabel{}).
func (s *sdkModel) addLabels(decl *ast.FuncDecl) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "AddMember" {
			return true
		}
		isLabel := false
		for _, argument := range call.Args[1:] {
			ast.Inspect(argument, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				isLabel = isLabel || ok && selector.Sel.Name == "HTTPLabel"
				return true
			})
		}
		shape, ok := method.X.(*ast.Ident)
		if ok && isLabel {
			s.labels[shape.Name+"."+literals(call.Args[0])[0]] = true
		}
		return true
	})
}

// isLabel reports whether a member of an operation's input is an element of the path.
func (s *sdkModel) isLabel(operation, member string) bool {
	return s.labels[operation+"Request."+strings.ToLower(member[:1])+member[1:]]
}

// requiredOf returns the paths of the members that the input of an operation must have,
// such as RoleName or Tags[].Key.
func (s *sdkModel) requiredOf(operation string) []string {
	return s.requiredBy("validateOp"+operation+"Input", "")
}

func (s *sdkModel) requiredBy(validator, prefix string) (paths []string) {
	decl := s.functions[validator]
	if decl == nil {
		return nil // nothing is required
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch function := call.Fun.(type) {
		case *ast.SelectorExpr:
			if function.Sel.Name == "NewErrParamRequired" {
				paths = append(paths, prefix+literals(call)[0])
			}
		case *ast.Ident:
			if strings.HasPrefix(function.Name, "validate") {
				paths = append(paths, s.requiredBy(function.Name, prefix+memberOf(call.Args[0]))...)
			}
		}
		return true
	})
	return paths
}

// memberOf returns the path element of a nested validator's argument: Tags for v.Tags, and
// []. for v[i].
func memberOf(argument ast.Expr) string {
	switch argument := argument.(type) {
	case *ast.SelectorExpr:
		return argument.Sel.Name
	case *ast.UnaryExpr:
		return memberOf(argument.X)
	case *ast.IndexExpr:
		return "[]."
	}
	return "."
}

// errorsOf returns the error codes of an operation. For EKS, the SDK has error codes per
// service only, so errorsOf returns all of them.
func (s *sdkModel) errorsOf(operation string) map[string]bool {
	for name, decl := range s.functions {
		if strings.HasSuffix(name, "_deserializeOpError"+operation) {
			codes := map[string]bool{}
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				if clause, ok := n.(*ast.CaseClause); ok {
					for _, condition := range clause.List {
						for _, code := range literals(condition) {
							codes[code] = true
						}
					}
				}
				return true
			})
			return codes
		}
	}
	return s.errorCodes
}

// literals returns the string literals in a syntax tree.
func literals(n ast.Node) (all []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// fakeSource is the source of this package, with the types of its own declarations.
type fakeSource struct {
	info      *types.Info
	functions map[types.Object]*ast.FuncDecl
	// operations are the values of type operation, by service and name.
	operations map[string]map[string]ast.Expr
}

func readFake(t *testing.T) *fakeSource {
	t.Helper()
	names, err := filepath.Glob("*.go")
	succeed(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		succeed(t, err)
		files = append(files, file)
	}
	s := &fakeSource{
		info:      &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		functions: map[types.Object]*ast.FuncDecl{}, operations: map[string]map[string]ast.Expr{},
	}
	// Imported packages are not loaded. The resulting type errors do not matter here.
	config := types.Config{Error: func(error) {}}
	_, _ = config.Check("fakeaws", fset, files, s.info)
	for _, file := range files {
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.FuncDecl); ok {
				s.functions[s.info.Defs[decl.Name]] = decl
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				s.addOperations(spec)
			}
			return true
		})
	}
	return s
}

func (s *fakeSource) addOperations(spec *ast.ValueSpec) {
	service := map[string]string{"iamOperations": "iam", "stsOperations": "sts", "eksRoutes": "eks"}[spec.Names[0].Name]
	table, ok := spec.Values[0].(*ast.CompositeLit)
	if service == "" || !ok {
		return
	}
	s.operations[service] = map[string]ast.Expr{}
	for _, element := range table.Elts {
		switch element := element.(type) {
		case *ast.KeyValueExpr: // "<name>": {...}
			s.operations[service][literals(element.Key)[0]] = element.Value
		case *ast.CompositeLit: // {"<method>", "<path>", "<name>", &operation{...}}
			s.operations[service][literals(element.Elts[2])[0]] = element.Elts[3]
		}
	}
}

// codesOf returns the error codes in all functions that an operation can call.
func (s *fakeSource) codesOf(t *testing.T, operation ast.Expr) []string {
	t.Helper()
	var codes []string
	seen := map[types.Object]bool{}
	var visit func(n ast.Node)
	visit = func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				function := s.info.Uses[n]
				if decl := s.functions[function]; decl != nil && !seen[function] {
					seen[function] = true
					visit(decl)
				}
			case *ast.CallExpr:
				if code := codeArgument(n); code != nil {
					codes = append(codes, literals(code)...)
				}
			}
			return true
		})
	}
	visit(operation)
	slices.Sort(codes)
	return slices.Compact(codes)
}

// codeArgument returns the code argument of errorf(status, code, ...) and
// fail(status, code, ...), or nil for any other call.
func codeArgument(call *ast.CallExpr) ast.Expr {
	name := ""
	switch function := call.Fun.(type) {
	case *ast.Ident:
		name = function.Name
	case *ast.SelectorExpr:
		name = function.Sel.Name
	}
	if (name == "errorf" || name == "fail") && len(call.Args) >= 3 {
		return call.Args[1]
	}
	return nil
}
