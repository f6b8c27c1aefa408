package handover

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Comparable returns the parts of an object that both sides must have: everything except what each side sets itself.
func Comparable(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{"resourceVersion", "managedFields", "selfLink", "generation", "finalizers"} {
			delete(metadata, field)
		}
		out["metadata"] = metadata
	}
	return out
}

// Equal reports whether two values have no differences.
func Equal(a, b any) bool { return len(Differences(a, b))+len(Differences(b, a)) == 0 }

// Differences returns the paths of the values in a that b does not have. Empty values equal absent ones.
func Differences(a, b any) []string { return appendDifferences(nil, "", a, b) }

func appendDifferences(paths []string, path string, a, b any) []string {
	if empty(a) || sameScalar(a, b) {
		return paths
	}
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok {
			return append(paths, path)
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			paths = appendDifferences(paths, path+"."+key, a[key], other[key])
		}
		return paths
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return append(paths, path)
		}
		for i := range a {
			paths = appendDifferences(paths, fmt.Sprintf("%s[%d]", path, i), a[i], other[i])
		}
		return paths
	}
	return append(paths, path)
}

func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, item := range value {
			if !empty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// sameScalar reports whether two values are equal, or different spellings of a time, a duration or a quantity.
func sameScalar(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		parseTime := func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }
		equalDurations := func(a, b time.Duration) bool { return a == b }
		return ok && (a == b || same(a, b, parseTime, time.Time.Equal) || same(a, b, time.ParseDuration, equalDurations) ||
			same(a, b, resource.ParseQuantity, resource.Quantity.Equal))
	case bool, int64, float64:
		return a == b
	}
	return false
}

// same reports whether two texts are spellings of one value.
func same[T any](a, b string, parse func(string) (T, error), equal func(T, T) bool) bool {
	x, err := parse(a)
	if err != nil {
		return false
	}
	y, err := parse(b)
	return err == nil && equal(x, y)
}
