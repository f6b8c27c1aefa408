package query

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := filter("a", Equal, "b")
	many := make([]Comparison, MaxTerms)
	for i := range many {
		many[i] = NewComparison(Equal, "x")
	}
	for name, test := range map[string]struct {
		query   Query
		want    CheckError
		message string
	}{
		"no property":           {filters(good, filter("", Equal, "a")), CheckError{Filter: 1, Keyword: -1, Value: -1}, "must name a property"},
		"a space in a property": {filters(filter("a b", Equal, "a")), CheckError{Filter: 0, Keyword: -1, Value: -1}, `"a b" is not the name`},
		"a digit at first":      {filters(filter("1a", Equal, "a")), CheckError{Filter: 0, Keyword: -1, Value: -1}, `"1a" is not the name`},
		"no value":              {filters(good, Filter{Property: "a"}), CheckError{Filter: 1, Keyword: -1, Value: -1}, "must have a value"},
		"unknown operator":      {filters(good, filterOf("a", NewComparison(Equal, "b"), NewComparison("~", "b"))), CheckError{Filter: 1, Keyword: -1, Value: 1}, `"~" is not an operator`},
		"without constructor":   {filters(filterOf("a", Comparison{Op: Equal, Text: "x"})), CheckError{Filter: 0, Keyword: -1, Value: 0}, "must have a text"},
		"value is not UTF-8":    {filters(filter("a", Equal, "b", "\xff")), CheckError{Filter: 0, Keyword: -1, Value: 1}, "must be UTF-8"},
		"value with a NUL":      {filters(filter("a", Equal, "b\x00")), CheckError{Filter: 0, Keyword: -1, Value: 0}, "NUL"},
		"empty keyword":         {keywords("a", ""), CheckError{Filter: -1, Keyword: 1, Value: -1}, "must not be empty"},
		"keyword is not UTF-8":  {keywords("\xff"), CheckError{Filter: -1, Keyword: 0, Value: -1}, "must be UTF-8"},
		"too many values":       {Query{Keywords: []string{"x"}, Filters: []Filter{filterOf("a", many...)}}, CheckError{Filter: -1, Keyword: -1, Value: -1}, "1001 keywords and values"},
		"too long":              {keywords(strings.Repeat("a", MaxLength), "b"), CheckError{Filter: -1, Keyword: -1, Value: -1}, "65537 bytes"},
		"values too long":       {filters(filter("a", Equal, strings.Repeat("a", MaxLength))), CheckError{Filter: -1, Keyword: -1, Value: -1}, "65537 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.query.Check()
			var wrong *CheckError
			if !errors.As(err, &wrong) {
				t.Fatalf("Check() = %v, want a CheckError", err)
			}
			if wrong.Filter != test.want.Filter || wrong.Keyword != test.want.Keyword || wrong.Value != test.want.Value ||
				!strings.Contains(err.Error(), test.message) {
				t.Errorf("Check() = %#v, want the indexes of %#v and message %q", wrong, test.want, test.message)
			}
		})
	}
	for name, q := range map[string]Query{
		"empty query":  {},
		"empty value":  filters(filter("a", Equal, "")),
		"all features": {Keywords: []string{"*"}, Filters: []Filter{good, filterOf("_b.c/d-1", ParseComparison(">=*"))}},
		"just enough":  filters(filterOf("a", many...)),
	} {
		if err := q.Check(); err != nil {
			t.Errorf("%s: Check() = %v, want nil", name, err)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"kind", "label", "name", "namespace", "restarts", "status", "_uid", "container"}
	for name, want := range map[string]string{
		"kinds": "kind", "Kind": "kind", "nmae": "name", "stauts": "status", "Status": "status", "namespaces": "namespace",
		"nampesace": "namespace", "restart": "restarts", "containers": "container", "labels": "label", "uid": "_uid",
		"name": "", "": "", "x": "", "foo": "", "nginx": "", "owner": "", strings.Repeat("kind", 100): "",
	} {
		if got := Suggest(name, known); got != want {
			t.Errorf("Suggest(%.20s) = %q, want %q", name, got, want)
		}
	}
	if got := Suggest("name", nil); got != "" {
		t.Errorf("Suggest() without known names = %q, want none", got)
	}
}
