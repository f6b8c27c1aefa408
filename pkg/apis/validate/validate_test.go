package validate

import (
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

func TestChecks(t *testing.T) {
	path, seen := field.NewPath("f"), map[string]bool{"seen": true}
	name := apivalidation.ValidateNamespaceName
	for _, test := range []struct {
		errs field.ErrorList
		want []string
	}{
		{Required("a", path), nil},
		{Required("", path), []string{"f: Required value"}},
		{Supported("a", path, "a", "b"), nil},
		{Supported("", path, "a"), []string{"f: Required value"}},
		{Supported("c", path, "a", "b"), []string{"f: Unsupported value"}},
		{Name("a", path, name), nil},
		{Name("A", path, name), []string{"f: Invalid value"}},
		{RequiredName("", path, name), []string{"f: Required value"}},
		{RequiredName("A", path, name), []string{"f: Invalid value"}},
		{Unique("new", seen, path), nil},
		{Unique("new", seen, path), []string{"f: Duplicate value"}},
		{Unique("seen", seen, path), []string{"f: Duplicate value"}},
		{Unique("", seen, path), []string{"f: Required value"}},
	} {
		fieldtest.Check(t, test.errs, test.want...)
	}
}
