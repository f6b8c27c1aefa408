package query

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a query.
const (
	// MaxLength bounds the bytes of a query text, or of all texts of a structured query.
	MaxLength = 64 << 10
	// MaxTerms bounds the keywords and values of a query.
	MaxTerms = 1000
	// MaxWildcards bounds the wildcards of a value.
	MaxWildcards = 32
)

// CheckError is the error for an invalid structured query. Filter, Keyword and Value are the
// indexes of the invalid part. Value is an index into the Comparisons of Filter. Each is -1 if it
// does not apply.
type CheckError struct {
	Filter, Keyword, Value int
	Message                string
}

// Error returns the invalid part and the reason.
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

// CheckProperty returns the reason why the name of a property is invalid, or "" if it is valid.
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

// Check returns a CheckError if Parse cannot return the query.
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
		whole.Message = fmt.Sprintf("has %d keywords and values; the maximum is %d", terms, MaxTerms)
	case length > MaxLength:
		whole.Message = fmt.Sprintf("has %d bytes; the maximum is %d", length, MaxLength)
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
		return "must have a text"
	case len(c.Parts)-1 > MaxWildcards:
		return tooManyWildcards
	}
	return checkText(c.Text)
}

// checkText returns the reason why a text is invalid, or "" if it is valid.
func checkText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be UTF-8"
	case strings.Contains(text, "\x00"):
		return "must not contain a NUL character"
	}
	return ""
}

// propertyLength returns the length of the longest prefix that can name a property.
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

// maxSuggested is the maximum length of names that are compared.
const maxSuggested = 64

// Suggest returns the known name that is closest to a name, case-insensitively. Among equally close
// names, it returns the first. It returns "" if no name is close, or if the name is known.
func Suggest(name string, known []string) string {
	best, closest := "", 0
	if len(name) <= maxSuggested {
		// One third of the letters may differ, but at least one letter.
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

// distance returns the number of bytes that must be inserted, deleted, replaced or swapped with the
// next byte to turn one text into another.
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
