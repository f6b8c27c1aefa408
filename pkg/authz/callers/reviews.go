package callers

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// reviewsPerCaller and reviewsInAll limit concurrent reviews. One caller cannot occupy all places.
const (
	reviewsPerCaller = 16
	reviewsInAll     = 64
)

// Reviews limits the concurrent access reviews for work that requires a number of reviews that a caller chooses, such
// as one for each selected cluster. Further reviews wait, first those of the same caller.
type Reviews struct {
	all *semaphore.Weighted

	mu      sync.Mutex
	callers map[string]*places
}

// places limits the concurrent reviews of a caller. users counts those that run or wait.
type places struct {
	*semaphore.Weighted
	users int
}

// NewReviews returns a Reviews.
func NewReviews() *Reviews {
	return &Reviews{all: semaphore.NewWeighted(reviewsInAll), callers: map[string]*places{}}
}

// For returns an authorizer that delegates to next, within the limits of a caller, whatever user a review is about.
func (r *Reviews) For(caller string, next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		own := r.enter(caller)
		defer r.leave(caller, own)
		for _, limit := range []*semaphore.Weighted{own.Weighted, r.all} {
			if err := limit.Acquire(ctx, 1); err != nil {
				return authorizer.DecisionNoOpinion, "", fmt.Errorf("waiting for other access reviews: %w", err)
			}
			defer limit.Release(1)
		}
		return next.Authorize(ctx, a)
	})
}

// ForUsers returns an authorizer that delegates to next, within the limits of the user that a review is about.
func (r *Reviews) ForUsers(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return r.For(Of(a.GetUser()), next).Authorize(ctx, a)
	})
}

func (r *Reviews) enter(caller string) *places {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.callers[caller]
	if own == nil {
		own = &places{Weighted: semaphore.NewWeighted(reviewsPerCaller)}
		r.callers[caller] = own
	}
	own.users++
	return own
}

func (r *Reviews) leave(caller string, own *places) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(r.callers, caller)
	}
}
