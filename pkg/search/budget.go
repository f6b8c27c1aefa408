package search

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Defaults of what one request may take of an engine in this process.
const (
	// DefaultCost is processor time, as the engine estimates it before it does something.
	DefaultCost = time.Second
	// DefaultBytes is the memory that the answer takes until it is written.
	DefaultBytes = 64 << 20
)

// Budget is what one request may still take of an engine, however many searches it makes. An
// engine takes from it before it does what it takes it for, so a search that is too expensive
// ends before it has cost more than the budget.
type Budget struct {
	cost, bytes     atomic.Int64
	ofCost, ofBytes int64
}

// NewBudget returns a Budget.
func NewBudget(cost time.Duration, bytes int64) *Budget {
	b := &Budget{ofCost: int64(cost), ofBytes: bytes}
	b.cost.Store(b.ofCost)
	b.bytes.Store(b.ofBytes)
	return b
}

// Spend takes an estimated cost from the budget. It returns an API error with status 400 if that is more than is left.
func (b *Budget) Spend(cost time.Duration) error {
	if b.cost.Add(-int64(cost)) >= 0 {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the search is too expensive: it needs more than the %s of processor time that one request may take; "+
			"use fewer or longer keywords, fewer wildcards and comparisons, or fewer searches, or restrict it to a kind, a namespace or a cluster", time.Duration(b.ofCost)))
}

// Hold takes memory from the budget. It returns an API error with status 400 if that is more than is left.
func (b *Budget) Hold(bytes int) error {
	if b.bytes.Add(-int64(bytes)) >= 0 {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the search finds too much: its answer needs more than the %d bytes of memory that one request may take; use a limit, with continue or offset for the rest", b.ofBytes))
}

type budgetKey struct{}

// WithBudget has all searches with a context share a new Budget, unless they already share one.
func WithBudget(ctx context.Context) context.Context {
	if _, has := ctx.Value(budgetKey{}).(*sharedBudget); has {
		return ctx
	}
	return context.WithValue(ctx, budgetKey{}, &sharedBudget{})
}

// sharedBudget is made by the first search, since the engine decides how large it is.
type sharedBudget struct{ budget atomic.Pointer[Budget] }

// BudgetOf returns the Budget that the searches with a context share, or a new one.
func BudgetOf(ctx context.Context, fresh func() *Budget) *Budget {
	shared, has := ctx.Value(budgetKey{}).(*sharedBudget)
	if !has {
		return fresh()
	}
	if b := shared.budget.Load(); b != nil {
		return b
	}
	shared.budget.CompareAndSwap(nil, fresh())
	return shared.budget.Load()
}
