package query

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// SyntaxError is the error for an invalid query text.
type SyntaxError struct {
	// Position is the byte offset of the error, at most the length of the text.
	Position int
	Message  string
	// Suggestion is the term that the caller probably intended, if known.
	Suggestion string
}

// Error returns the position, the reason and the suggestion.
func (e *SyntaxError) Error() string {
	message := fmt.Sprintf("position %d: %s", e.Position, e.Message)
	if e.Suggestion != "" {
		message += "; use " + e.Suggestion + " instead"
	}
	return message
}

// operators contains all characters of operators except the colon.
const operators = "!=<>"

// meant maps common mistakes to the intended operators.
var meant = map[string]Op{
	"==": Equal, "===": Equal,
	"=!": NotEqual, "!==": NotEqual, "!=!": NotEqual, "<>": NotEqual, "><": NotEqual,
	"=<": LessOrEqual, "<==": LessOrEqual, "!>": LessOrEqual,
	"=>": GreaterOrEqual, ">==": GreaterOrEqual, "!<": GreaterOrEqual,
	"<<": Less, ">>": Greater,
}

// Parse parses the text form of a query: terms separated by spaces. Its errors are SyntaxErrors.
//
// A filter is the name of a property, an operator, and values separated by commas: "namespace:a,b",
// "status!=Running", "restarts>3". The operators are = != < <= > >=, : for =, and !: for !=. After a colon, each
// value may have its own operator, including ! for !=: "restarts:>3,<1". In values, * matches any text.
//
// All other terms are keywords. A * at the beginning or the end of a keyword has no effect, because keywords match
// anywhere.
//
// Text in double or single quotes and characters after a backslash are literal. In single quotes, the backslash is
// literal too; in double quotes, it escapes quotes and itself.
func Parse(text string) (Query, error) {
	p := parser{text: text}
	if err := p.readable(); err != nil {
		return Query{}, err
	}
	for p.skipSpace(); p.at < len(text); p.skipSpace() {
		start := p.at
		if err := p.term(); err != nil {
			return Query{}, err
		}
		if p.terms > MaxTerms {
			return Query{}, &SyntaxError{Position: start, Message: fmt.Sprintf("more than %d keywords and values", MaxTerms)}
		}
		p.previous = text[start:p.at]
	}
	return p.query, nil
}

// parser parses a text from its beginning.
type parser struct {
	text  string
	at    int
	query Query
	// terms counts the parsed keywords and values.
	terms int
	// previous is the previous term.
	previous string
}

// readable returns an error for a text that is invalid as a whole.
func (p *parser) readable() error {
	switch message := checkText(p.text); {
	case len(p.text) > MaxLength:
		return &SyntaxError{Position: MaxLength, Message: fmt.Sprintf("more than %d bytes", MaxLength)}
	case message != "":
		at := strings.IndexByte(p.text, 0)
		for i, r := range p.text {
			if _, size := utf8.DecodeRuneInString(p.text[i:]); r == utf8.RuneError && size == 1 {
				at = i
				break
			}
		}
		return &SyntaxError{Position: at, Message: "the text " + message}
	}
	return nil
}

func (p *parser) skipSpace() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

// term reads a filter or a keyword.
func (p *parser) term() error {
	start := p.at
	property := p.text[start : start+propertyLength(p.text[start:])]
	p.at += len(property)
	op, colon, err := p.operator(start)
	switch {
	case err != nil:
		return err
	case op == "":
		p.at = start
		return p.keyword()
	case property == "":
		return p.strayOperator(start)
	}
	return p.values(start, property, op, colon)
}

// operator reads the operator after a property. The result is empty if there is none. After a
// colon, each value may have its own operator.
func (p *parser) operator(term int) (op Op, colon bool, err error) {
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, ":"):
		p.at++
		return Equal, true, nil
	case strings.HasPrefix(rest, "!:"):
		p.at += 2
		return NotEqual, false, nil
	}
	run := operatorRun(rest)
	switch Op(run) {
	case "", "!":
		return "", false, nil
	case Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual:
		p.at += len(run)
		return Op(run), false, nil
	}
	// A term that begins with ! but not with an operator is a keyword.
	if run[0] == '!' && run[1] == '!' {
		return "", false, nil
	}
	return "", false, p.unknownOperator(term, run)
}

// operatorRun returns the operator characters at the beginning of a text.
func operatorRun(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, operators))]
}

func (p *parser) unknownOperator(term int, run string) error {
	err := &SyntaxError{Position: p.at, Message: fmt.Sprintf("unknown operator %s; the operators are : = != < <= > >=", run)}
	before, value := p.text[term:p.at], p.raw(p.at+len(run))
	if before == "" && p.afterProperty() {
		before, value = p.previous, p.valueAt(p.at+len(run))
	}
	if op, known := meant[run]; known && before != "" {
		err.Suggestion = before + string(op) + value
	}
	return err
}

// strayOperator returns the error for a term that starts with an operator.
func (p *parser) strayOperator(start int) error {
	operator := p.text[start:p.at]
	err := &SyntaxError{Position: start}
	if p.afterProperty() {
		err.Message = "there must be no space around the operator " + operator
		err.Suggestion = p.previous + operator + p.valueAt(p.at)
	} else {
		err.Message = fmt.Sprintf("a property is missing before the operator %s", operator)
		err.Suggestion = quote(operator + p.raw(p.at))
	}
	return err
}

// afterProperty reports whether the previous term may be a property that is followed by a space.
func (p *parser) afterProperty() bool {
	return p.previous != "" && propertyLength(p.previous) == len(p.previous)
}

// valueAt returns the value of an operator that ends at the given position, possibly after a space.
func (p *parser) valueAt(from int) string {
	if value := p.raw(from); value != "" {
		return value
	}
	return p.rawNext(from)
}

// values reads the values of a filter.
func (p *parser) values(term int, property string, op Op, colon bool) error {
	f := Filter{Property: property}
	for {
		own := op
		run := operatorRun(p.text[p.at:])
		switch {
		case run == "":
		case !colon:
			err := &SyntaxError{Position: p.at, Message: fmt.Sprintf("a second operator %s; quote it if it belongs to the value", run)}
			if len(f.Comparisons) > 0 {
				err.Message = "values with their own operators must follow a colon"
			}
			if len(f.Comparisons) == 1 {
				before := strings.TrimLeft(p.text[term+len(property):p.at], operators+":")
				err.Suggestion = property + ":" + string(op) + before + p.raw(p.at)
			}
			return err
		case run == "!":
			own = NotEqual
		case leadingRun(run):
			own = Op(run)
		default:
			return p.unknownOperator(term, run)
		}
		if colon {
			p.at += len(run)
		}
		start := p.at
		var w word
		if err := p.word(&w, true); err != nil {
			return err
		}
		if p.at == start {
			return p.missingValue(term)
		}
		parts := w.parts()
		if len(parts)-1 > MaxWildcards && (own == Equal || own == NotEqual) {
			return &SyntaxError{Position: start, Message: "a value " + tooManyWildcards}
		}
		f.Comparisons = append(f.Comparisons, compareWith(own, parts))
		p.terms++
		if p.terms > MaxTerms || p.at == len(p.text) || p.text[p.at] != ',' {
			break
		}
		p.at++
	}
	p.query.Filters = append(p.query.Filters, f)
	return nil
}

// leadingRun reports whether operator characters form one operator.
func leadingRun(run string) bool {
	op, length := leadingOp(run)
	return length == len(run) && string(op) == run
}

func (p *parser) missingValue(term int) error {
	before := p.text[term:p.at]
	err := &SyntaxError{Position: p.at, Message: fmt.Sprintf(`a value is missing after %s; an empty value is ""`, before)}
	if p.at < len(p.text) && p.text[p.at] == ',' {
		if next := p.raw(p.at + 1); next != "" {
			err.Suggestion = before + next
		}
		return err
	}
	if next := p.rawNext(p.at); next != "" {
		err.Message = fmt.Sprintf("there must be no space after %s", before)
		err.Suggestion = before + next
	}
	return err
}

// keyword reads a keyword.
func (p *parser) keyword() error {
	start := p.at
	if p.text[start] == ',' {
		err := &SyntaxError{Position: start, Message: "a comma without a value before it; quote a keyword that begins with one"}
		if p.previous != "" {
			err.Message = "there must be no space around a comma"
			err.Suggestion = p.previous + "," + p.rawNext(start+1)
		}
		return err
	}
	var w word
	if err := p.word(&w, false); err != nil {
		return err
	}
	parts := w.parts()
	wildcard := len(parts) > 1
	if wildcard && parts[0] == "" {
		parts = parts[1:]
	}
	if len(parts) > 1 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	switch {
	case len(parts) > 1:
		raw := p.text[start:p.at]
		return &SyntaxError{
			Position:   start + strings.IndexByte(raw, '*'),
			Message:    "a keyword must not have a wildcard in the middle; compare a property, or quote the keyword",
			Suggestion: Name + ":" + raw,
		}
	case parts[0] != "":
		p.query.Keywords = append(p.query.Keywords, parts[0])
		p.terms++
	case !wildcard:
		return &SyntaxError{Position: start, Message: "a keyword is empty"}
	}
	return nil
}

// word reads up to the next space. In a value, it reads up to the next comma.
func (p *parser) word(w *word, value bool) error {
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == ',' && value:
			return nil
		case c == '*':
			w.wildcard()
			p.at++
		case c == '"' || c == '\'':
			if err := p.quoted(w, c); err != nil {
				return err
			}
		case c == '\\':
			if p.at+1 == len(p.text) {
				return &SyntaxError{Position: p.at, Message: `a character is missing after the backslash; a backslash itself is \\`}
			}
			p.at++
			_, size := utf8.DecodeRuneInString(p.text[p.at:])
			w.literal(p.text[p.at : p.at+size])
			p.at += size
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.at:])
			if unicode.IsSpace(r) {
				return nil
			}
			w.literal(p.text[p.at : p.at+size])
			p.at += size
		}
	}
	return nil
}

// quoted reads a text in quotes.
func (p *parser) quoted(w *word, end byte) error {
	start := p.at
	for p.at++; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		switch {
		case c == end:
			p.at++
			return nil
		case c == '\\' && end == '"' && p.at+1 < len(p.text) && (p.text[p.at+1] == '"' || p.text[p.at+1] == '\\'):
			p.at++
		}
		w.literal(p.text[p.at : p.at+1])
	}
	return &SyntaxError{
		Position: start,
		Message:  fmt.Sprintf(`the quote %c is not closed; a quote itself is \%c`, end, end),
	}
}

// raw returns the text from the given position to the next unquoted space, or to the end of the
// text that can be parsed.
func (p *parser) raw(from int) string {
	ahead := parser{text: p.text, at: from}
	var w word
	if ahead.word(&w, false) != nil {
		return p.text[from:]
	}
	return p.text[from:ahead.at]
}

// rawNext returns the next term after the given position if it is a single word, such as the value
// of an operator that is followed by a space.
func (p *parser) rawNext(from int) string {
	ahead := parser{text: p.text, at: from}
	ahead.skipSpace()
	start := ahead.at
	if start == len(p.text) || ahead.keyword() != nil {
		return ""
	}
	next := p.text[start:ahead.at]
	if strings.ContainsAny(next, operators+":") {
		return ""
	}
	return next
}

// quote quotes a text.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
