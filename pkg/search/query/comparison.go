package query

import (
	"strings"
	"time"
)

// ages maps the words for ages to durations.
var ages = map[string]time.Duration{
	"hour":  time.Hour,
	"day":   24 * time.Hour,
	"week":  7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour,
	"year":  365 * 24 * time.Hour,
}

// NewComparison returns a comparison with a literal text. An empty operator means Equal.
func NewComparison(op Op, text string) Comparison {
	return compareWith(op, []string{text})
}

// NewFilter returns a filter with one literal comparison.
func NewFilter(property string, op Op, text string) Filter {
	return Filter{Property: property, Comparisons: []Comparison{NewComparison(op, text)}}
}

// OrderedText returns a text by which the filter orders texts, because it is neither a number nor a time, or "".
func (f *Filter) OrderedText() string {
	for i := range f.Comparisons {
		if c := &f.Comparisons[i]; c.Op != Equal && c.Op != NotEqual && c.Number == nil && c.Time == nil && c.Age == 0 {
			return c.Text
		}
	}
	return ""
}

// NewPattern returns a comparison with a pattern, in which * matches any text and a backslash
// escapes the next character. Consecutive wildcards count as one. For operators other than Equal
// and NotEqual, * is literal. An empty operator means Equal.
func NewPattern(op Op, text string) Comparison {
	if !strings.ContainsAny(text, `*\`) {
		return NewComparison(op, text)
	}
	var w word
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '*':
			w.wildcard()
		case text[i] == '\\' && i+1 < len(text):
			i++
			w.literal(text[i : i+1])
		default:
			w.literal(text[i : i+1])
		}
	}
	return compareWith(op, w.parts())
}

// ParseComparison parses a value of a structured filter: an optional operator (= ! != > >= < <=) and a pattern.
// Every text is valid.
func ParseComparison(text string) Comparison {
	op, length := leadingOp(text)
	return NewPattern(op, text[length:])
}

// leadingOp returns the operator at the beginning of a text and its length.
func leadingOp(text string) (Op, int) {
	for _, op := range [...]Op{NotEqual, LessOrEqual, GreaterOrEqual, Less, Greater, Equal} {
		if strings.HasPrefix(text, string(op)) {
			return op, len(op)
		}
	}
	if strings.HasPrefix(text, "!") {
		return NotEqual, 1
	}
	return Equal, 0
}

// compareWith returns a comparison with the parts between wildcards.
func compareWith(op Op, parts []string) Comparison {
	if op == "" {
		op = Equal
	}
	text := strings.Join(parts, "*")
	if op != Equal && op != NotEqual {
		parts = []string{text}
	}
	c := Comparison{Op: op, Text: text, Parts: parts}
	if c.Wildcard() {
		return c
	}
	if number, is := ParseNumber(text); is {
		c.Number = &number
	} else if at, is := ParseTime(text); is {
		c.Time = &at
	} else if at, err := time.Parse(time.DateOnly, text); err == nil {
		c.Time = &at
	} else {
		c.Age = ages[text]
	}
	return c
}

// word is a text with wildcards while it is parsed.
type word struct {
	before []string
	last   strings.Builder
}

func (w *word) literal(text string) { w.last.WriteString(text) }

func (w *word) wildcard() {
	if len(w.before) > 0 && w.last.Len() == 0 {
		return
	}
	w.before = append(w.before, w.last.String())
	w.last.Reset()
}

func (w *word) parts() []string { return append(w.before, w.last.String()) }
