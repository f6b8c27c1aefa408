package query

import (
	"strings"
	"unicode"
)

// String returns the text form of a query that passes Check. Parse returns the same query for this
// text, unless quotes make the text longer than MaxLength.
func (q *Query) String() string {
	var b strings.Builder
	for i := range q.Filters {
		if f := &q.Filters[i]; len(f.Comparisons) > 0 {
			separate(&b)
			f.write(&b)
		}
	}
	for _, keyword := range q.Keywords {
		separate(&b)
		if strings.ContainsAny(keyword, operators+":,") {
			b.WriteString(quote(keyword))
		} else {
			b.WriteString(quoteIfNeeded(keyword))
		}
	}
	return b.String()
}

func separate(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
}

func (f *Filter) write(b *strings.Builder) {
	b.WriteString(f.Property)
	op, colon := f.Comparisons[0].Op, false
	for i := range f.Comparisons {
		colon = colon || f.Comparisons[i].Op != op
	}
	switch {
	case colon || op == Equal || op == "":
		b.WriteByte(':')
	default:
		b.WriteString(string(op))
	}
	for i := range f.Comparisons {
		c := &f.Comparisons[i]
		if i > 0 {
			b.WriteByte(',')
		}
		if colon && c.Op != Equal {
			b.WriteString(string(c.Op))
		}
		c.write(b)
	}
}

// write writes the value of the comparison.
func (c *Comparison) write(b *strings.Builder) {
	for i, part := range c.Parts {
		if i > 0 {
			b.WriteByte('*')
		}
		switch {
		case part == "" && c.Wildcard():
		case i == 0 && strings.ContainsAny(part[:min(1, len(part))], operators+":"):
			b.WriteString(quote(part))
		default:
			b.WriteString(quoteIfNeeded(part))
		}
	}
}

// quoteIfNeeded quotes a value that is not literal without quotes.
func quoteIfNeeded(text string) string {
	special := func(r rune) bool {
		return strings.ContainsRune(`"'\*,`, r) || unicode.IsSpace(r) || !unicode.IsGraphic(r)
	}
	if text == "" || strings.ContainsFunc(text, special) {
		return quote(text)
	}
	return text
}

// quote quotes a text.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
