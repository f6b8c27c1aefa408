package search

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Default budget of one request to an engine in this process.
const (
	// DefaultCost is processor time, which the engine estimates before it starts a step.
	DefaultCost = time.Second
	// DefaultBytes is the memory of a response until it is written.
	DefaultBytes = 64 << 20
)

// Budget bounds the total cost of all searches of one request. An engine takes the cost of a step
// from the budget before it starts the step, so an expensive search fails before it exceeds the
// budget.
type Budget struct {
	cost, bytes     atomic.Int64
	ofCost, ofBytes int64
	// pool bounds the large responses of all requests. It is nil if there is no bound.
	pool   *Pool
	caller string
	// request is the request that draws from the pool.
	request context.Context

	mu sync.Mutex
	// held is the part of the pool that the request holds. After it was returned, closed is true, and the request
	// takes no more.
	held   int64
	closed bool
}

// Pool bounds the memory of all large responses until they are written. One caller may use half of it.
type Pool struct {
	limit int64

	mu      sync.Mutex
	held    int64
	callers map[string]int64
}

const (
	// PoolBytes is the default size of a Pool.
	PoolBytes = 128 << 20
	// smallBytes is the size up to which a response does not count.
	smallBytes = 1 << 20
	// poolRetrySeconds is the time after which a client may retry.
	poolRetrySeconds = 2
)

// NewPool returns a Pool with a limit in bytes.
func NewPool(limit int64) *Pool { return &Pool{limit: limit, callers: map[string]int64{}} }

// hold takes memory for a response to a caller. It never rejects an empty caller.
func (p *Pool) hold(caller string, bytes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if caller != "" && (p.held+bytes > p.limit || p.callers[caller]+bytes > p.limit/2) {
		return apierrors.NewTooManyRequests(fmt.Sprintf(
			"large responses to searches exceed %d bytes of memory in total, or half of that for one caller; try again later, or use a limit", p.limit), poolRetrySeconds)
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

// Draw makes the budget also take the memory of large responses from a Pool, for a caller, until
// ctx ends.
func (b *Budget) Draw(ctx context.Context, from *Pool, caller string) {
	b.pool, b.caller, b.request = from, caller, ctx
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closed = true
		if b.held > 0 {
			from.release(caller, b.held)
			b.held = 0
		}
	})
}

// take takes memory from the pool, unless the request has ended: nothing would return it.
func (b *Budget) take(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return b.request.Err()
	}
	if err := b.pool.hold(b.caller, bytes); err != nil {
		return err
	}
	b.held += bytes
	return nil
}

// NewBudget returns a Budget.
func NewBudget(cost time.Duration, bytes int64) *Budget {
	b := &Budget{ofCost: int64(cost), ofBytes: bytes}
	b.cost.Store(b.ofCost)
	b.bytes.Store(b.ofBytes)
	return b
}

// Spend takes an estimated cost from the budget. It returns an API error with status 400 if the rest of the budget
// is smaller.
func (b *Budget) Spend(cost time.Duration) error {
	if b.cost.Add(-int64(cost)) >= 0 {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the search is too expensive: it exceeds the limit of %s of processor time for one request; "+
			"use fewer or longer keywords, fewer wildcards, comparisons or searches, or restrict it to a kind, a namespace or a cluster", time.Duration(b.ofCost)))
}

// Hold takes memory from the budget. It returns an API error with status 400 if the rest of the budget is smaller, and
// the error of the context if the request has ended.
func (b *Budget) Hold(bytes int) error {
	left := b.bytes.Add(-int64(bytes))
	if left >= 0 {
		if b.pool == nil || b.ofBytes-left < smallBytes {
			return nil
		}
		return b.take(int64(bytes))
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the response is too large: it exceeds the limit of %d bytes of memory for one request; use a limit, with continue or offset for the rest", b.ofBytes))
}

type budgetKey struct{}

// WithBudget returns a context whose searches share one Budget. If they already share a Budget, it
// is kept.
func WithBudget(ctx context.Context) context.Context {
	if _, has := ctx.Value(budgetKey{}).(*sharedBudget); has {
		return ctx
	}
	return context.WithValue(ctx, budgetKey{}, &sharedBudget{request: ctx})
}

// sharedBudget creates the budget at the first search, because the engine decides the size of the
// budget.
type sharedBudget struct {
	request context.Context
	once    sync.Once
	budget  *Budget
}

// BudgetOf returns the Budget that the searches of a context share, or a new one. A shared Budget
// draws from the Pool for the caller until the request ends.
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
