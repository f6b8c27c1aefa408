package search

import "context"

type staleKey struct{}

// AllowStale returns a context in which an engine may answer searches, completions and schemas from a state that is a
// few seconds old.
func AllowStale(ctx context.Context) context.Context { return context.WithValue(ctx, staleKey{}, true) }

// StaleAllowed reports whether the context comes from AllowStale.
func StaleAllowed(ctx context.Context) bool { return ctx.Value(staleKey{}) != nil }
