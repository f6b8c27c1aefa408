// Package tiers checks the table of the long tests.
package tiers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

var declaration = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)

// declared returns the names of the tests of each directory.
func declared(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, tree := range []string{"artifacts", "cmd", "examples", "hack", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			for _, match := range declaration.FindAllSubmatch(content, -1) {
				if name := string(match[1]); name != "TestMain" {
					out[dir] = append(out[dir], name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestTable checks that the names of the table exist, and that a name selects the tests of its own package only: the
// tiers select them in several packages at once.
func TestTable(t *testing.T) {
	content, err := os.ReadFile("long")
	if err != nil {
		t.Fatal(err)
	}
	tests := declared(t)
	short := func(pkg string) bool { return true }
	named := map[string]string{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "; ")
		if len(fields) != 3 {
			t.Errorf("row %q has %d fields, want 3", line, len(fields))
			continue
		}
		pkg, names := fields[0], fields[1]
		if len(tests[pkg]) == 0 {
			t.Errorf("row %q: %s has no tests", line, pkg)
		}
		for path := range strings.FieldsSeq(fields[2]) {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("row %q: %v", line, err)
			}
		}
		if names == "*" {
			before := short
			short = func(other string) bool { return other != pkg && before(other) }
			continue
		}
		for name := range strings.SplitSeq(names, "|") {
			named[name] = pkg
			if !slices.Contains(tests[pkg], name) {
				t.Errorf("row %q: %s has no test %s", line, pkg, name)
			}
		}
	}
	for pkg, names := range tests {
		for _, name := range names {
			if owner := named[name]; owner != "" && owner != pkg && short(pkg) {
				t.Errorf("%s of %s would run with the long tests too, because %s has a test of the same name", name, pkg, owner)
			}
		}
	}
}

// tier runs hack/tests.sh and returns what it prints.
func tier(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "hack/tests.sh", name)
	command.Dir, command.Env = root, append(os.Environ(), env...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	return string(out), err
}

// TestNothingIsInNeitherTier checks that each package with tests is in one of the tiers.
func TestNothingIsInNeitherTier(t *testing.T) {
	var selected strings.Builder
	for _, name := range []string{"short", "packages", "some"} {
		out, err := tier(t, name)
		if err != nil {
			t.Fatal(err)
		}
		selected.WriteString(strings.ReplaceAll(out, "./", "open-cluster-management.io/hub-apiserver/"))
	}
	packages := strings.Fields(selected.String())
	modules := []string{"hack/devhub", "hack/monitoring", "hack/release", "hack/tools"}
	for pkg := range declared(t) {
		// The Makefile runs the modules. The tests of test/skew have a build tag: make test-skew. Those of test/node need
		// root: make test-node.
		if slices.Contains(modules, pkg) || pkg == "test/skew" || pkg == "test/node" || strings.Contains(pkg, "testdata") {
			continue
		}
		if !slices.Contains(packages, "open-cluster-management.io/hub-apiserver/"+pkg) {
			t.Errorf("no tier runs the tests of %s", pkg)
		}
	}
}

// TestLongTestsAreDue checks the decision of .ci/run.
func TestLongTestsAreDue(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("without git there are no changes")
	}
	out, err := tier(t, "due", "CI_BASE=HEAD")
	var exit *exec.ExitError
	if out != "" || !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("tests.sh due without a change = %q, %v, want exit status 1", out, err)
	}
	// The empty tree: everything has changed.
	out, err = tier(t, "due", "CI_BASE=4b825dc642cb6eb9a060e54bf8d69288fbee4904")
	if out == "" || err != nil {
		t.Errorf("tests.sh due after a change of everything = %q, %v, want a path", out, err)
	}
}
