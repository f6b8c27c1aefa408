package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

const (
	// allowedAge and deniedAge are the times for which an answer is kept. A ManifestWork that was
	// refused waits for a permission, so it asks again soon.
	allowedAge = 10 * time.Second
	deniedAge  = time.Second
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 100_000
	// parallelism limits the reviews in flight of one executor, and maxParallelism those of all
	// executors, so that one executor does not delay the others.
	parallelism    = 16
	maxParallelism = 4 * parallelism
	// reviewTimeout bounds one review. Authorizers may send requests over the network.
	reviewTimeout = 10 * time.Second
)

type decision struct {
	allowed bool
	// reason is given by the cluster and may be empty.
	reason string
}

type reviews struct {
	client  authorizationv1client.AuthorizationV1Interface
	answers *cache.LRUExpireCache
	// flights shares the answer of a review in flight among all checks that ask the same and are not fresh.
	flights singleflight.Group
	// slots limits the reviews in flight.
	slots chan struct{}
}

func newReviews(client authorizationv1client.AuthorizationV1Interface) *reviews {
	return &reviews{client: client, answers: cache.NewLRUExpireCache(maxAnswers), slots: make(chan struct{}, maxParallelism)}
}

// question is a question about a user. The user is agentItself if the agent asks about itself.
type question struct {
	user    string
	request authorizationv1.ResourceAttributes
}

const agentItself = ""

// decide returns the decisions on requests of a user. Equal requests are asked once. It uses no
// answer from before the call if fresh is true. If any request cannot be decided, it returns an error.
func (r *reviews) decide(ctx context.Context, a *account, user string, requests []authorizationv1.ResourceAttributes, fresh bool) (map[authorizationv1.ResourceAttributes]decision, error) {
	distinct := sets.New(requests...).UnsortedList()
	answers := make([]decision, len(distinct))
	// The first failure ends the others, because each may take as long.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelism)
	for i, request := range distinct {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			answers[i], err = r.answer(ctx, a, question{user: user, request: request}, fresh)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	decisions := make(map[authorizationv1.ResourceAttributes]decision, len(distinct))
	for i, request := range distinct {
		decisions[request] = answers[i]
	}
	return decisions, nil
}

// answer returns the answer to a question that is kept, or asks the cluster. It waits for a slot before
// it sends a review, so that nothing is sent for a check that has ended.
func (r *reviews) answer(ctx context.Context, a *account, q question, fresh bool) (decision, error) {
	if known, ok := r.kept(q); ok && !fresh {
		return known, nil
	}
	for _, slots := range []chan struct{}{a.slots, r.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return decision{}, ctx.Err()
		}
	}
	if fresh {
		return r.ask(ctx, a, q) // a review in flight may have been decided before the call
	}
	result := r.flights.DoChan(fmt.Sprintf("%#v", q), func() (any, error) {
		if known, ok := r.kept(q); ok {
			return known, nil // another check has received the answer meanwhile
		}
		// Others may wait for the answer when the context of the first one ends.
		return r.ask(context.WithoutCancel(ctx), a, q)
	})
	select {
	case <-ctx.Done():
		return decision{}, ctx.Err()
	case answered := <-result:
		if answered.Err != nil {
			return decision{}, answered.Err
		}
		return answered.Val.(decision), nil
	}
}

func (r *reviews) kept(q question) (decision, bool) {
	known, _ := r.answers.Get(q)
	d, ok := known.(decision)
	return d, ok
}

func (r *reviews) ask(ctx context.Context, a *account, q question) (decision, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	var status authorizationv1.SubjectAccessReviewStatus
	var err error
	if q.user == agentItself {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &q.request}}
		if review, err = r.client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{}); err == nil {
			status = review.Status
		}
	} else {
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: q.user, Groups: groups(a.name), ResourceAttributes: &q.request},
		}
		if review, err = r.client.SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{}); err == nil {
			status = review.Status
		}
	}
	var d decision
	if err == nil {
		d, err = decisionOf(status)
	}
	if err != nil {
		return decision{}, fmt.Errorf("access review: %w", err)
	}
	age := deniedAge
	if d.allowed {
		age = allowedAge
	}
	r.answers.Add(q, d, age)
	return d, nil
}

// decisionOf returns the decision of a review. If an authorizer failed, and no other authorizer
// allowed or denied the request, it returns an error instead of a denial. The RBAC authorizer does
// not fail, so another authorizer did.
func decisionOf(status authorizationv1.SubjectAccessReviewStatus) (decision, error) {
	if !status.Allowed && !status.Denied && status.EvaluationError != "" {
		return decision{}, errors.New(status.EvaluationError)
	}
	return decision{allowed: status.Allowed && !status.Denied, reason: status.Reason}, nil
}
