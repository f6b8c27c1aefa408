package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestMessageKeepsReasons checks that a message that is too long loses values, not the reasons.
func TestMessageKeepsReasons(t *testing.T) {
	job := schema.GroupKind{Group: "batch", Kind: "Job"}
	template := map[string]string{"labels": strings.Repeat(`"x"`, 1000)}
	path := field.NewPath("spec")
	invalid := func(errs ...*field.Error) error { return apierrors.NewInvalid(job, "run", errs) }
	immutable := field.Invalid(path.Child("template"), template, "field is immutable")
	many := make([]*field.Error, 100)
	var conflicts []metav1.StatusCause
	for i := range many {
		many[i] = field.Invalid(path.Child("template").Index(i), template, "must be short")
		conflicts = append(conflicts, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: fmt.Sprintf(".data.%d", i), Message: `conflict with "other"`})
	}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"short":                 {errors.New("no"), []string{"no"}},
		"one cause":             {invalid(immutable), []string{`Job.batch "run" is invalid: spec.template: Invalid value: {"labels":`, "…", ": field is immutable"}},
		"two causes":            {invalid(immutable, field.Required(path.Child("x"), "given always")), []string{"field is immutable; spec.x: Required value: given always"}},
		"a value that is text":  {invalid(field.Invalid(path, strings.Repeat("a", 9000), "no name")), []string{`spec: Invalid value: "aaa`, ": no name"}},
		"many causes":           {invalid(many...), []string{"spec.template[0]: Invalid value: ", "must be short", "; and "}},
		"conflicts":             {apierrors.NewApplyConflict(conflicts, "Apply failed with 500 conflicts: "+strings.Repeat("- .data.0\n", 500)), []string{"Apply failed with 500 conflicts:", `.data.0: conflict with "other"`, "more"}},
		"with a context":        {fmt.Errorf("create: %w", invalid(immutable)), []string{`create: Job.batch "run" is invalid: spec.template`, "field is immutable"}},
		"no causes":             {apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "run", errors.New(strings.Repeat("x", 5000)+": not allowed")), []string{`jobs "run" is forbidden`, ": not allowed"}},
		"a value without quote": {invalid(field.Invalid(path, field.OmitValueType{}, strings.Repeat("é", 5000)+" end")), []string{"spec: Invalid value: é", " end"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Message(test.err)
			if len(got) > maxMessage+len("…") {
				t.Errorf("len(Message()) = %d, want at most %d", len(got), maxMessage)
			}
			rest := got
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("Message() = %q, want it to contain %q in this order", got, test.want)
				}
				rest = after
			}
		})
	}
}
