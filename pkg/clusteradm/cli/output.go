package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"k8s.io/cli-runtime/pkg/printers"
)

// The formats of --output.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputName  = "name"
)

// maxListed is the maximum number of names in a message, and of findings of one kind.
const maxListed = 10

// lines is held while a line is printed, because some commands act on several clusters at the same time.
var lines sync.Mutex

// Say prints a line. It ignores errors, because a closed output must not stop the command.
func (e Environment) Say(format string, args ...any) { say(e.Out, format, args...) }

// Warn prints a warning.
func (e Environment) Warn(format string, args ...any) { say(e.ErrOut, "Warning: "+format, args...) }

func say(out io.Writer, format string, args ...any) {
	lines.Lock()
	defer lines.Unlock()
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// WriteJSON prints a value as indented JSON.
func (e Environment) WriteJSON(value any) error {
	encoder := json.NewEncoder(e.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// WriteLines prints texts of others as one line each.
func (e Environment) WriteLines(texts []string) error {
	var b strings.Builder
	for _, text := range texts {
		b.WriteString(Printable(text) + "\n")
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}

// Table prints rows in columns.
type Table struct {
	out interface {
		io.Writer
		Flush() error
	}
}

// NewTable returns a table with its first row.
func (e Environment) NewTable(cells ...string) Table {
	table := Table{printers.GetNewTabWriter(e.Out)}
	table.Row(cells...)
	return table
}

// Row adds a row.
func (t Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	_, _ = fmt.Fprintln(t.out, strings.Join(cells, "\t")) // Flush returns the error
}

// Flush prints the table.
func (t Table) Flush() error { return t.out.Flush() }

// Printable returns a text on one line that cannot control a terminal, because reported text can be hostile.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToGraphic(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Some joins the first names of a list.
func Some(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}

// ShellCommand returns words as one command on several lines.
func ShellCommand(words ...string) string { return "    " + strings.Join(words, " \\\n        ") }
