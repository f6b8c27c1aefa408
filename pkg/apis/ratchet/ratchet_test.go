package ratchet

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

type object struct {
	Name  string `json:"name,omitempty"`
	Limit int    `json:"limit,omitempty"`
	Items []item `json:"items,omitempty"`
}

type item struct {
	Name  string   `json:"name,omitempty"`
	Note  string   `json:"note,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

// check returns each form of error: at a value, at an element of a list, at an element in
// relation to others, and in a nested list.
func check(o *object) field.ErrorList {
	var errs field.ErrorList
	if o.Limit < 0 {
		errs = append(errs, field.Invalid(field.NewPath("limit"), o.Limit, "may not be negative"))
	}
	seen := map[string]bool{}
	for i, it := range o.Items {
		path := field.NewPath("items").Index(i)
		if it.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else if seen[it.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), it.Name))
		}
		seen[it.Name] = true
		for j, part := range it.Parts {
			if part == "bad" {
				errs = append(errs, field.Invalid(path.Child("parts").Index(j), part, "is bad"))
			}
		}
	}
	return errs
}

func TestFilter(t *testing.T) {
	bad := item{Note: "a"}
	tests := map[string]struct {
		old, obj object
		want     []string
	}{
		"good stays good":                 {old: object{Limit: 1}, obj: object{Limit: 2}},
		"good turned bad":                 {old: object{Limit: 1}, obj: object{Limit: -1}, want: []string{"limit"}},
		"bad value kept, another changed": {old: object{Limit: -1}, obj: object{Limit: -1, Name: "n"}},
		"bad value changed":               {old: object{Limit: -1}, obj: object{Limit: -2}, want: []string{"limit"}},
		"bad element kept":                {old: object{Items: []item{bad}}, obj: object{Name: "n", Items: []item{bad}}},
		"bad element moved":               {old: object{Items: []item{bad, {Name: "x"}}}, obj: object{Items: []item{{Name: "x"}, bad}}},
		"bad element changed":             {old: object{Items: []item{bad}}, obj: object{Items: []item{{Note: "b"}}}, want: []string{"items[0].name"}},
		"bad element repeated":            {old: object{Items: []item{bad}}, obj: object{Items: []item{bad, bad}}, want: []string{"items[1].name"}},
		"bad element after a new one":     {old: object{Items: []item{bad}}, obj: object{Items: []item{{Note: "new"}, bad}}, want: []string{"items[0].name"}},
		"bad element replaced by another": {old: object{Items: []item{bad, {Name: "x"}}}, obj: object{Items: []item{{Note: "new"}, {Name: "x"}}}, want: []string{"items[0].name"}},
		"one bad element fixed":           {old: object{Items: []item{bad, {Note: "b"}}}, obj: object{Items: []item{{Name: "x", Note: "a"}, {Note: "b"}}}},
		"duplicates change places": {
			old: object{Items: []item{{Name: "x", Note: "1"}, {Name: "x", Note: "2"}}},
			obj: object{Items: []item{{Name: "x", Note: "2"}, {Name: "x", Note: "1"}}},
		},
		"another duplicate": {
			old:  object{Items: []item{{Name: "x", Note: "1"}, {Name: "x", Note: "2"}}},
			obj:  object{Items: []item{{Name: "x", Note: "1"}, {Name: "x", Note: "2"}, {Name: "x", Note: "3"}}},
			want: []string{"items[2].name"},
		},
		"bad element of a list within a changed element": {
			old: object{Items: []item{{Name: "x", Parts: []string{"bad"}}}},
			obj: object{Items: []item{{Name: "y", Parts: []string{"good", "bad"}}}},
		},
		"bad element of a list within an element, added": {
			old:  object{Items: []item{{Name: "x", Parts: []string{"good"}}}},
			obj:  object{Items: []item{{Name: "x", Parts: []string{"bad"}}}},
			want: []string{"items[0].parts[0]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kept := Filter(check(&test.obj), check(&test.old), &test.obj, &test.old)
			var got []string
			for _, e := range kept {
				got = append(got, e.Field)
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("paths of Filter() = %v, want %v", got, test.want)
			}
		})
	}
}

// An object may have as many errors as elements, so that the cost must not be quadratic.
func BenchmarkFilterManyErrors(b *testing.B) {
	old, obj := object{Name: "old"}, object{Name: "new"}
	for i := range 10000 {
		old.Items = append(old.Items, item{Note: fmt.Sprint(i)})
		obj.Items = append(obj.Items, item{Note: fmt.Sprint(10000 - 1 - i)})
	}
	for b.Loop() {
		if kept := Filter(check(&obj), check(&old), &obj, &old); len(kept) > 0 {
			b.Fatal(kept[0])
		}
	}
}

func TestPathsWithKeys(t *testing.T) {
	path := field.NewPath("status").Child("capacity").Key("example.com/gpu").Index(1).Child("x")
	content := map[string]any{"status": map[string]any{"capacity": map[string]any{"example.com/gpu": []any{1, map[string]any{"x": "a"}}}}}
	var got []string
	collect(content, steps.FindAllString(path.String(), -1), func(part string) { got = append(got, part) })
	if len(got) != 1 || got[0] != `"a"` {
		t.Errorf("values at %s = %v, want a", path, got)
	}
}
