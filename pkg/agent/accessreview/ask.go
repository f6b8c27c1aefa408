package accessreview

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reviewTimeout bounds one review. Authorizers may send requests over the network.
const reviewTimeout = 10 * time.Second

// flight is one review in flight. Callers with the same question share its answer.
type flight struct {
	done chan struct{}
	// overtaken is set if RBAC changed after the review was sent. The Reviewer's mu guards it.
	overtaken bool

	// The following fields are valid once done is closed.

	decision Decision
	err      error
	// abandoned is set if the review ended because the context of its caller ended. Other callers
	// must not use the result.
	abandoned bool
}

// ask sends a review to the cluster, or waits for the answer of a flight with the same question.
func (r *Reviewer) ask(ctx context.Context, account types.NamespacedName, request Request, maxAge time.Duration) (Decision, error) {
	for {
		r.mu.Lock()
		// A flight may have ended since the caller checked the cache.
		if known := r.cache.get(account, question{request: request}); known.holds(r.clock.Now(), maxAge, r.watches.complete()) {
			decision := known.decision
			r.mu.Unlock()
			return decision, nil
		}
		m := r.cache.of(account)
		other := m.flights[request]
		if other == nil {
			own := &flight{done: make(chan struct{})}
			m.flights[request] = own
			r.mu.Unlock()
			r.send(ctx, account, request, m, own)
			return own.decision, own.err
		}
		r.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return Decision{}, ctx.Err()
		}
		if !other.abandoned {
			return other.decision, other.err
		}
	}
}

// send sends the review of a flight and caches its answer.
func (r *Reviewer) send(ctx context.Context, account types.NamespacedName, request Request, m *memory, f *flight) {
	var asked time.Time
	var watched bool
	defer func() {
		f.abandoned = f.err != nil && ctx.Err() != nil
		r.store(account, request, m, f, asked, watched)
		close(f.done)
	}()
	for _, slots := range []chan struct{}{m.slots, r.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			f.err = ctx.Err()
			return
		}
	}
	r.mu.Lock()
	asked, watched = r.clock.Now(), r.watches.complete()
	r.mu.Unlock()
	f.decision, f.err = r.review(ctx, account, request)
}

// store caches the answer of a flight that was sent at the given time.
func (r *Reviewer) store(account types.NamespacedName, request Request, m *memory, f *flight, asked time.Time, watched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.flights[request] == f {
		delete(m.flights, request)
	}
	// The account may have been removed from the cache in the meantime.
	if r.cache.accounts[account] != m {
		return
	}
	if f.err != nil {
		r.cache.tidy(account)
		return
	}
	q := question{request: request}
	a := &answer{decision: f.decision, asked: asked, watched: watched}
	if f.overtaken {
		// The event has notified the account, which may have a newer answer already.
		if r.cache.get(account, q) != nil {
			return
		}
		a.invalidate(r.clock.Now())
	} else if event, unsettled := r.unsettled.last(account, request, asked, r.contradicts(account, request, f.decision)); unsettled {
		a.invalidate(r.clock.Now())
		r.watches.recheck(account, event, asked)
	}
	r.cache.put(account, q, a)
}

// contradicts reports whether a decision allows a request that the watched RBAC does not grant.
// Either another authorizer allows the request, or the API server has not received a revocation
// yet. The caller must hold mu.
func (r *Reviewer) contradicts(account types.NamespacedName, request Request, decision Decision) bool {
	return decision.Allowed && r.watches != nil && !r.watches.policy.allows(account, request)
}

// review sends a SubjectAccessReview to the cluster.
func (r *Reviewer) review(ctx context.Context, account types.NamespacedName, request Request) (Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	attributes := request.Attributes()
	review, err := r.client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: UserName(account), Groups: Groups(account), ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	decision := Decision{}
	if err == nil {
		decision, err = decisionOf(review.Status)
	}
	switch {
	case err != nil:
		reviews.WithLabelValues("error").Inc()
		return Decision{}, fmt.Errorf("SubjectAccessReview: %w", err)
	case decision.Allowed:
		reviews.WithLabelValues("allowed").Inc()
	default:
		reviews.WithLabelValues("denied").Inc()
	}
	return decision, nil
}

// decisionOf returns the decision of a review. If an authorizer failed, and no other authorizer
// allowed or denied the request, it returns an error instead of a denial. The RBAC authorizer does
// not fail, so another authorizer did.
func decisionOf(status authorizationv1.SubjectAccessReviewStatus) (Decision, error) {
	if !status.Allowed && !status.Denied && status.EvaluationError != "" {
		return Decision{}, errors.New(status.EvaluationError)
	}
	return Decision{Allowed: status.Allowed && !status.Denied, Reason: status.Reason}, nil
}
