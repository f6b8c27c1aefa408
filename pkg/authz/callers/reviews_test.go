package callers

import (
	"context"
	"errors"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// blocking is an authorizer that decides about the user hostile only after release is closed.
type blocking struct {
	entered chan struct{}
	release chan struct{}
}

func (b *blocking) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "hostile" {
		b.entered <- struct{}{}
		<-b.release
	}
	return authorizer.DecisionAllow, "", nil
}

func of(name string) authorizer.Attributes {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "bind", ResourceRequest: true}
}

// TestReviewsOfHostileCaller checks that reviews of a caller are decided while another caller waits for the decisions of
// as many reviews as it can send.
func TestReviewsOfHostileCaller(t *testing.T) {
	hub := &blocking{entered: make(chan struct{}, 1000), release: make(chan struct{})}
	reviews := NewReviews()
	limited := reviews.ForUsers(authorizer.AuthorizerFunc(hub.Authorize))
	var hostile sync.WaitGroup
	for range 10 * reviewsInAll {
		hostile.Go(func() {
			if decision, _, err := limited.Authorize(t.Context(), of("hostile")); decision != authorizer.DecisionAllow || err != nil {
				t.Errorf("Authorize() = %v, %v, want allow", decision, err)
			}
		})
	}
	for range reviewsPerCaller {
		<-hub.entered
	}
	for range 3 {
		if decision, _, err := limited.Authorize(t.Context(), of("ann")); decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("Authorize() of another caller = %v, %v, want allow", decision, err)
		}
	}
	if decision, _, err := reviews.For("another", authorizer.AuthorizerFunc(hub.Authorize)).Authorize(t.Context(), of("ann")); decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("Authorize() for another caller = %v, %v, want allow", decision, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if decision, _, err := limited.Authorize(ended, of("hostile")); decision == authorizer.DecisionAllow || !errors.Is(err, context.Canceled) {
		t.Errorf("Authorize() of a request that ends = %v, %v, want an error", decision, err)
	}
	if got := len(hub.entered); got != 0 {
		t.Errorf("concurrent reviews of a caller = %d, want %d", reviewsPerCaller+got, reviewsPerCaller)
	}
	close(hub.release)
	hostile.Wait()
	if len(reviews.callers) != 0 {
		t.Errorf("callers after all reviews = %v, want none", reviews.callers)
	}
}
