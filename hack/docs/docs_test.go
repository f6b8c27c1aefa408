package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	notInURL = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	code     = regexp.MustCompile("`([^`\n]+)`")
	step     = regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+\\.go)`: `(?:(\\w+)\\.)?(\\w+)`")
	path     = regexp.MustCompile(`^(pkg|cmd|test|hack|artifacts|docs|examples|\.ci|\.github)(/[A-Za-z0-9_.,{}*-]+)*/?$`)
)

// documents returns the text of each Markdown file without code blocks, by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found, err := Pages(root)
	if err != nil || found["README.md"] == "" {
		t.Fatalf("Pages() has README.md = %t, error %v, want README.md and no error", found["README.md"] != "", err)
	}
	for name, text := range found {
		found[name] = fence.ReplaceAllString(text, "")
	}
	return found
}

// anchors returns the anchors that GitHub gives to the headings of a document.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		title := notInURL.ReplaceAllString(strings.ToLower(match[1]), "")
		found[strings.ReplaceAll(title, " ", "-")] = true
	}
	return found
}

func TestLinks(t *testing.T) {
	texts := documents(t)
	for name, text := range texts {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(match[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link to %s = %v, want an existing file", name, match[1], err)
			} else if anchor != "" && !anchors(texts[target])[anchor] {
				t.Errorf("%s: link to %s: %s has no heading with anchor %q, want one", name, match[1], target, anchor)
			}
		}
	}
}

// TestPaths checks that the paths in the pages for contributors exist.
func TestPaths(t *testing.T) {
	texts := documents(t)
	for _, name := range []string{"docs/where-is.md", "docs/architecture.md", "CONTRIBUTING.md"} {
		checked := 0
		for _, match := range code.FindAllStringSubmatch(texts[name], -1) {
			if !path.MatchString(match[1]) {
				continue
			}
			checked++
			for _, pattern := range alternatives(match[1]) {
				if files, err := filepath.Glob(filepath.Join(root, pattern)); err != nil || len(files) == 0 {
					t.Errorf("%s: Glob(%s) = %v, %v, want an existing file", name, pattern, files, err)
				}
			}
		}
		if checked == 0 {
			t.Errorf("%s: checked 0 paths, want at least 1", name)
		}
	}
}

// TestWalks checks that the functions of the walks exist.
func TestWalks(t *testing.T) {
	steps := step.FindAllStringSubmatch(documents(t)["docs/architecture.md"], -1)
	if len(steps) == 0 {
		t.Error("docs/architecture.md has 0 steps of walks, want at least 1")
	}
	for _, match := range steps {
		receiver := ""
		if match[2] != "" {
			receiver = `\(\w+ \*?` + match[2] + `(\[[^)]*\])?\) `
		}
		function := regexp.MustCompile(`(?m)^func ` + receiver + match[3] + `[(\[]`)
		source, err := os.ReadFile(filepath.Join(root, match[1]))
		if err != nil || !function.Match(source) {
			t.Errorf("docs/architecture.md: step %q: Match(%s) = false, error %v, want the function", match[0], function, err)
		}
	}
}

// alternatives expands the first {a,b} of a path.
func alternatives(name string) []string {
	before, rest, found := strings.Cut(name, "{")
	inside, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []string{name}
	}
	var expanded []string
	for _, part := range strings.Split(inside, ",") {
		expanded = append(expanded, alternatives(before+part+after)...)
	}
	return expanded
}
