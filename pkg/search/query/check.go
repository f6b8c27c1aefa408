package query

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a query.
const (
	// MaxLength is how many bytes the text of a query, or all texts of a structured one, may have.
	MaxLength = 64 << 10
	// MaxTerms is how many keywords and values a query may have.
	MaxTerms = 1000
	// MaxWildcards is how many wildcards a value may have.
	MaxWildcards = 32
)

// CheckError tells what is wrong with a structured query. Filter, Keyword and Value are indexes of
// what is meant, Value within the Comparisons of Filter; each is -1 if it does not apply.
type CheckError struct {
	Filter, Keyword, Value int
	Message                string
}

// Error says where the query is wrong, and what.
func (e *CheckError) Error() string {
	switch {
	case e.Keyword >= 0:
		return fmt.Sprintf("keyword %d: %s", e.Keyword, e.Message)
	case e.Filter >= 0 && e.Value >= 0:
		return fmt.Sprintf("filter %d: value %d: %s", e.Filter, e.Value, e.Message)
	case e.Filter >= 0:
		return fmt.Sprintf("filter %d: %s", e.Filter, e.Message)
	default:
		return e.Message
	}
}

// CheckProperty is what is wrong with the name of a property; empty if nothing is.
func CheckProperty(name string) string {
	switch {
	case name == "":
		return "must name a property"
	case propertyLength(name) != len(name):
		return fmt.Sprintf("%q is not the name of a property: "+
			"must begin with a letter or _, and consist of letters, digits, _, ., - and /", name)
	}
	return ""
}

// Check tells whether the query is one that Parse could return. Its errors are CheckErrors.
func (q *Query) Check() error {
	terms, length := len(q.Keywords), 0
	for i, keyword := range q.Keywords {
		length += len(keyword)
		message := checkText(keyword)
		if keyword == "" {
			message = "must not be empty"
		}
		if message != "" {
			return &CheckError{Filter: -1, Keyword: i, Value: -1, Message: message}
		}
	}
	for i := range q.Filters {
		f := &q.Filters[i]
		terms += len(f.Comparisons)
		length += len(f.Property)
		if message := f.check(); message != "" {
			return &CheckError{Filter: i, Keyword: -1, Value: -1, Message: message}
		}
		for j := range f.Comparisons {
			c := &f.Comparisons[j]
			length += len(c.Text)
			if message := c.check(); message != "" {
				return &CheckError{Filter: i, Keyword: -1, Value: j, Message: message}
			}
		}
	}
	whole := &CheckError{Filter: -1, Keyword: -1, Value: -1}
	switch {
	case terms > MaxTerms:
		whole.Message = fmt.Sprintf("has %d keywords and values, must have at most %d", terms, MaxTerms)
	case length > MaxLength:
		whole.Message = fmt.Sprintf("has %d bytes, must have at most %d", length, MaxLength)
	default:
		return nil
	}
	return whole
}

func (f *Filter) check() string {
	if message := CheckProperty(f.Property); message != "" {
		return message
	}
	if len(f.Comparisons) == 0 {
		return "must have a value"
	}
	return ""
}

var tooManyWildcards = fmt.Sprintf("must have at most %d wildcards", MaxWildcards)

func (c *Comparison) check() string {
	switch c.Op {
	case Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual:
	default:
		return fmt.Sprintf("%q is not an operator: must be one of = != < <= > >=", c.Op)
	}
	switch {
	case len(c.Parts) == 0:
		return "must be made of a text"
	case len(c.Parts)-1 > MaxWildcards:
		return tooManyWildcards
	}
	return checkText(c.Text)
}

// checkText is what is wrong with a text; empty if nothing is.
func checkText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be UTF-8"
	case strings.Contains(text, "\x00"):
		return "must not contain a NUL character"
	}
	return ""
}

// propertyLength is how many bytes of a text, from its beginning, can name a property.
func propertyLength(text string) int {
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		case i > 0 && ('0' <= c && c <= '9' || c == '.' || c == '-' || c == '/'):
		default:
			return i
		}
	}
	return len(text)
}

// maxSuggested is the length up to which names are compared.
const maxSuggested = 64

// Suggest is the known name that another one was probably meant to be, without case; the first of
// those that are equally close, and empty if none is close, or if the name itself is known.
func Suggest(name string, known []string) string {
	best, closest := "", 0
	if len(name) <= maxSuggested {
		// A third of the letters may be wrong, and one in short names.
		closest = max(1, len(name)/3) + 1
	}
	for _, candidate := range known {
		if candidate == name {
			return ""
		}
		if len(candidate) > maxSuggested {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < closest && d < len(candidate) {
			best, closest = candidate, d
		}
	}
	return best
}

// distance is how many bytes must be inserted, deleted, replaced or swapped with the
// next to make one text of another.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
