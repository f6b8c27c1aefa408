package search

import (
	"context"
	"fmt"
	"sync"
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
	// pool is where all requests hold large answers; nil for none. held is what this one does.
	pool   *Pool
	caller string
	held   atomic.Int64
}

// Pool bounds the memory of all answers that are large and not written yet. One caller may use half of it.
type Pool struct {
	limit int64

	mu      sync.Mutex
	held    int64
	callers map[string]int64
}

const (
	// PoolBytes is the usual size of a Pool.
	PoolBytes = 128 << 20
	// smallBytes is the memory up to which answers do not count.
	smallBytes = 1 << 20
	// poolRetrySeconds is after how long a refused request may be tried again.
	poolRetrySeconds = 2
)

// NewPool returns a Pool of a number of bytes.
func NewPool(limit int64) *Pool { return &Pool{limit: limit, callers: map[string]int64{}} }

// hold takes memory for an answer of a caller; an empty caller is not refused any.
func (p *Pool) hold(caller string, bytes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if caller != "" && (p.held+bytes > p.limit || p.callers[caller]+bytes > p.limit/2) {
		return apierrors.NewTooManyRequests(fmt.Sprintf(
			"large answers of searches that are being written need more than %d bytes of memory together, half of it for one caller; try again, or use a limit", p.limit), poolRetrySeconds)
	}
	p.held += bytes
	p.callers[caller] += bytes
	return nil
}

func (p *Pool) release(caller string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= bytes
	if p.callers[caller] -= bytes; p.callers[caller] == 0 {
		delete(p.callers, caller)
	}
}

// Draw has the budget hold what is more than a little in a Pool too, for a caller, until ctx ends.
func (b *Budget) Draw(ctx context.Context, from *Pool, caller string) {
	b.pool, b.caller = from, caller
	context.AfterFunc(ctx, func() {
		if held := b.held.Swap(0); held > 0 {
			from.release(caller, held)
		}
	})
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
	left := b.bytes.Add(-int64(bytes))
	if left >= 0 {
		if b.pool == nil || b.ofBytes-left < smallBytes {
			return nil
		}
		if err := b.pool.hold(b.caller, int64(bytes)); err != nil {
			return err
		}
		b.held.Add(int64(bytes))
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
	return context.WithValue(ctx, budgetKey{}, &sharedBudget{request: ctx})
}

// sharedBudget is made by the first search, since the engine decides how large it is.
type sharedBudget struct {
	request context.Context
	once    sync.Once
	budget  *Budget
}

// BudgetOf returns the Budget that the searches with a context share, or a new one. Shared ones are those
// that draw from a Pool for a caller as long as the request lasts.
func BudgetOf(ctx context.Context, fresh func() *Budget, pool *Pool, caller string) *Budget {
	shared, has := ctx.Value(budgetKey{}).(*sharedBudget)
	if !has {
		return fresh()
	}
	shared.once.Do(func() {
		shared.budget = fresh()
		if pool != nil {
			shared.budget.Draw(shared.request, pool, caller)
		}
	})
	return shared.budget
}
