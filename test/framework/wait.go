package framework

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// Eventually is await.Eventually.
var Eventually = await.Eventually[func(context.Context) error]

// Must returns the value of a call that must not fail.
func Must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// deleteLater deletes an object at the end of the test, or when the returned function is called.
func deleteLater(t *testing.T, remove func(context.Context, string, metav1.DeleteOptions) error, name string) func() {
	t.Helper()
	undo := func() {
		if err := remove(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(undo)
	return undo
}

// IsGone returns nil if err, the result of a get, is NotFound, or an error otherwise.
func IsGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("the object still exists")
	}
	return err
}

// Gone returns nil if each of the lookups returned NotFound, or an error otherwise.
func Gone(lookups ...error) error {
	var errs []error
	for _, err := range lookups {
		errs = append(errs, IsGone(err))
	}
	return errors.Join(errs...)
}

// InvalidFields returns the field paths in an API error, sorted and without duplicates.
func InvalidFields(err error) []string {
	var out []string
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			out = append(out, cause.Field)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ToJSON returns a value as indented JSON, for messages.
func ToJSON(value any) string {
	out, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(out)
}
