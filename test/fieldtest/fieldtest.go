// Package fieldtest compares validation errors in tests.
package fieldtest

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check reports a test failure unless errs are the wanted errors, each as "<path>: <type of error>", in
// any order.
func Check(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, e := range errs {
		got = append(got, fmt.Sprintf("%s: %s", e.Field, e.Type))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("errors = %q, want %q; in full: %v", got, want, errs)
	}
}
