package reconcile

import (
	"k8s.io/client-go/tools/cache"
)

// Index is an index function for objects of one type.
func Index[T any](values func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if typed, ok := obj.(T); ok {
			return values(typed), nil
		}
		return nil, nil
	}
}

// IndexNames is an index function for objects of one type, by the names of other objects.
func IndexNames[T any](names func(T) []cache.ObjectName) cache.IndexFunc {
	return Index(func(typed T) []string {
		var values []string
		for _, name := range names(typed) {
			values = append(values, name.String())
		}
		return values
	})
}

// Indexed returns the objects of one type under a value of an index. It panics without the index, which its caller has
// added to the informer.
func Indexed[T any](indexer cache.Indexer, index, value string) []T {
	objects, err := indexer.ByIndex(index, value)
	if err != nil {
		panic(err)
	}
	out := make([]T, 0, len(objects))
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}
