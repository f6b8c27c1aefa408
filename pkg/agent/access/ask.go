package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reviewTimeout bounds one review. Authorizers may ask others over the network.
const reviewTimeout = 10 * time.Second

// flight is one review that is under way. Whoever asks the same meanwhile waits
// for its end.
type flight struct {
	done chan struct{}
	// overtaken is whether RBAC changed meanwhile; guarded by the Reviewer.
	overtaken bool

	// The rest is valid once done is closed.

	decision Decision
	err      error
	// abandoned is whether it ended because its caller has no more time. That is no
	// answer for others.
	abandoned bool
}

// ask asks the cluster, or waits for somebody else's answer to the same question.
func (r *Reviewer) ask(ctx context.Context, account types.NamespacedName, request Request, maxAge time.Duration) (Decision, error) {
	for {
		r.mu.Lock()
		// Somebody may have got it since the caller looked.
		if known := r.cache.get(account, question{request: request}); known.holds(r.clock.Now(), maxAge, r.watches.whole()) {
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
			r.fly(ctx, account, request, m, own)
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

// fly gets the answer of a flight and remembers it.
func (r *Reviewer) fly(ctx context.Context, account types.NamespacedName, request Request, m *memory, f *flight) {
	var asked time.Time
	var watched bool
	defer func() {
		f.abandoned = f.err != nil && ctx.Err() != nil
		r.land(account, request, m, f, asked, watched)
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
	asked, watched = r.clock.Now(), r.watches.whole()
	r.mu.Unlock()
	f.decision, f.err = r.review(ctx, account, request)
}

// land remembers the answer of a flight that was begun at a time.
func (r *Reviewer) land(account types.NamespacedName, request Request, m *memory, f *flight, asked time.Time, watched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.flights[request] == f {
		delete(m.flights, request)
	}
	// The account may have been forgotten meanwhile.
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
		// The account was told of the event, and may have a better answer already.
		if r.cache.get(account, q) != nil {
			return
		}
		a.forget(r.clock.Now())
	} else if event, unsettled := r.unsettled.last(account, request, asked); unsettled {
		a.forget(r.clock.Now())
		r.watches.recheck(account, event, asked)
	}
	r.cache.put(account, q, a)
}

// review asks the cluster.
func (r *Reviewer) review(ctx context.Context, account types.NamespacedName, request Request) (Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	resource, subresource, _ := strings.Cut(request.Resource, "/")
	review, err := r.client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   UserName(account),
			Groups: Groups(account),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: request.Verb, Group: request.Group, Version: request.Version,
				Resource: resource, Subresource: subresource,
				Namespace: request.Namespace, Name: request.Name,
			},
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

// decisionOf reads the status of a review. If an authorizer could not judge, and
// no other allowed or denied the request, it is an error and not a denial: RBAC
// reports none, so something that the cluster asks is out of order.
func decisionOf(status authorizationv1.SubjectAccessReviewStatus) (Decision, error) {
	if !status.Allowed && !status.Denied && status.EvaluationError != "" {
		return Decision{}, errors.New(status.EvaluationError)
	}
	return Decision{Allowed: status.Allowed && !status.Denied, Reason: status.Reason}, nil
}
