package embedded

import (
	"slices"

	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// completionsLimit bounds the number of cached completions. completionValues bounds the number
	// of values of each.
	completionsLimit = 256
	completionValues = 2000
	// cachedText bounds the length of the texts in a key of a cache, because callers choose them.
	cachedText = 1024
)

// completions caches the values of properties without a query, because consoles request them
// frequently.
type completions struct{ byKey *lru.Cache }

func newCompletions() *completions { return &completions{byKey: lru.New(completionsLimit)} }

// completionKey contains the inputs of completions without a query, except the data. It contains the caller, so that no
// caller notices the completions of others.
type completionKey struct {
	caller           string
	scope            uint64
	property, prefix string
	limit            int
}

// keptCompletion is valid until a resource is added, is removed or changes its property.
type keptCompletion struct {
	completion     search.Completion
	moves, touches uint64
	// properties are the numbers that the property had at that time. If it was removed in the
	// meantime, it gets another number.
	properties []uint32
}

// keyOf returns the key of a request, or false if the request has a query or a long text.
func (c *completions) keyOf(r *reader, request *search.CompletionRequest) (completionKey, bool) {
	if len(request.Query.Filters)+len(request.Query.Keywords) > 0 || len(request.Property)+len(request.Prefix) > cachedText {
		return completionKey{}, false
	}
	return completionKey{caller: r.caller, scope: r.scopeID, property: request.Property, prefix: request.Prefix, limit: request.Limit}, true
}

// get returns the completion of a key if it is still valid, or nil.
func (c *completions) get(r *reader, key completionKey) *search.Completion {
	found, ok := c.byKey.Get(key)
	if !ok {
		return nil
	}
	kept := found.(*keptCompletion)
	if kept.moves != r.nextMoved() || kept.touches < r.firstTouched || kept.touches > r.nextTouched() {
		return nil
	}
	properties := r.numbersOf(key.property)
	for _, t := range r.touched[kept.touches-r.firstTouched:] {
		if slices.Contains(kept.properties, t.property) || slices.Contains(properties, t.property) {
			return nil
		}
	}
	completion := kept.completion
	if kept.touches != r.nextTouched() {
		c.byKey.Add(key, &keptCompletion{completion: completion, moves: kept.moves, touches: r.nextTouched(), properties: properties})
	}
	completion.Values = slices.Clone(completion.Values)
	return &completion
}

// keep stores a completion.
func (c *completions) keep(r *reader, key completionKey, completion *search.Completion) {
	if len(completion.Values) > completionValues {
		return
	}
	kept := *completion
	kept.Values = slices.Clone(kept.Values)
	c.byKey.Add(key, &keptCompletion{completion: kept, moves: r.nextMoved(), touches: r.nextTouched(), properties: r.numbersOf(key.property)})
}

// numbersOf returns the numbers of the given properties that exist.
func (s *state) numbersOf(names ...string) []uint32 {
	numbers := make([]uint32, 0, len(names))
	for _, name := range names {
		if id, known := s.propertyNames[name]; known {
			numbers = append(numbers, id)
		}
	}
	return numbers
}
