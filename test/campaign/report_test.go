package campaign

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// result is one row of the document.
type result struct {
	// Name is the name of the row, and Fault what happens.
	Name, Fault string
	// Calls and Failed are the calls of the clients. Errors are the failures by error.
	Calls, Failed int
	Errors        map[string]int
	// Violations is the number of violations of the history, lost writes included.
	Violations int
	// Longest is the longest time that a client needed until a call succeeded. Delivery and Search are the longest
	// times until a ManifestWork was applied, and until a search was answered. Recovery is the time from the begin
	// of the fault until no client fails, or from its end if nothing redundant was left. All are in seconds.
	Longest, Delivery, Search, Recovery float64
	// Duration is the time from the start of the fault until its end, in seconds.
	Duration float64
	// Note is more text about the row, or empty.
	Note string
}

const (
	begin = "<!-- written by make campaign -->"
	end   = "<!-- end -->"
)

// cells returns the row of the table.
func (r *result) cells() []string {
	var errors []string
	// The most frequent first.
	for _, text := range slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		if r.Errors[a] != r.Errors[b] {
			return r.Errors[b] - r.Errors[a]
		}
		return strings.Compare(a, b)
	}) {
		errors = append(errors, fmt.Sprintf("%s (%d)", strings.ReplaceAll(text, "|", "/"), r.Errors[text]))
	}
	if len(errors) > 3 {
		errors = append(errors[:3], "…")
	}
	seen := "no errors"
	if r.Failed > 0 {
		seen = strings.Join(errors, ", ")
	}
	if r.Note != "" {
		seen += ". " + r.Note
	}
	lost := "nothing"
	if r.Violations > 0 {
		lost = fmt.Sprintf("**%d violations**", r.Violations)
	}
	second := func(value float64) string { return fmt.Sprintf("%.1f", value) }
	return []string{
		"`" + r.Name + "`", r.Fault, second(r.Duration), fmt.Sprintf("%d of %d", r.Failed, r.Calls), seen, second(r.Longest), second(r.Delivery), second(r.Search), lost, second(r.Recovery),
	}
}

// header is the head of the table.
var header = []string{"row", "fault", "duration", "failed calls", "what clients see", "longest call", "longest delivery", "longest search", "lost", "recovery"}

// update returns the document with new rows. Rows that did not run stay, in the order of names.
func update(document string, names []string, results map[string]*result) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no %s and %s", begin, end)
	}
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
			rows[name] = strings.TrimSpace(line)
		}
	}
	for name, r := range results {
		rows[name] = "| " + strings.Join(r.cells(), " | ") + " |"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s\n\n| %s |\n|%s\n", before, begin, strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, name := range names {
		if rows[name] != "" {
			fmt.Fprintln(&out, rows[name])
		}
	}
	fmt.Fprintf(&out, "\n%s%s", end, after)
	return out.String(), nil
}

// write writes results to docs/reliability.md.
func write(names []string, results map[string]*result) error {
	path := filepath.Join(localhub.Root(), "docs", "reliability.md")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err := update(string(content), names, results)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(document), 0o644)
}

func TestUpdate(t *testing.T) {
	document := "# Title\n\n" + begin + "\n" + end + "\n\nText\n"
	names := []string{"first", "second", "third"}
	add := func(r *result) {
		t.Helper()
		var err error
		if document, err = update(document, names, map[string]*result{r.Name: r}); err != nil {
			t.Fatal(err)
		}
	}
	add(&result{Name: "third", Fault: "c", Calls: 10, Failed: 3, Errors: map[string]int{"timeout": 1, "503 | x": 2}, Recovery: 1.26})
	add(&result{Name: "first", Fault: "a", Calls: 7, Violations: 2})
	add(&result{Name: "first", Fault: "again", Calls: 8})
	want := "# Title\n\n" + begin + `

| row | fault | duration | failed calls | what clients see | longest call | longest delivery | longest search | lost | recovery |
|---|---|---|---|---|---|---|---|---|---|
| ` + "`first`" + ` | again | 0.0 | 0 of 8 | no errors | 0.0 | 0.0 | 0.0 | nothing | 0.0 |
| ` + "`third`" + ` | c | 0.0 | 3 of 10 | 503 / x (2), timeout (1) | 0.0 | 0.0 | 0.0 | nothing | 1.3 |

` + end + "\n\nText\n"
	if document != want {
		t.Errorf("update() = %s, want %s", document, want)
	}
}
