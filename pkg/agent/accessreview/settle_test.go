package accessreview

import (
	"context"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

func TestEventInvalidatesItsAnswers(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 4, getA, getB, getFar, deleteA)
	f.want(bob, true, 2, getA, deleteA)

	f.bind(rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "team", Name: "b"}, "reader", alice)
	f.wantNotified(alice, 1)
	f.clock.Step(10 * time.Second)
	f.want(alice, true, 0, getFar, deleteA)
	f.want(alice, true, 2, getA, getB, getFar, deleteA)
	f.want(bob, true, 0, getA, deleteA)
	if notified := f.notified.count(bob); notified != 0 {
		t.Errorf("bob was notified %d times, want 0", notified)
	}
}

// TestRevocationThatTheFirstReviewMisses simulates an API server whose authorizer receives an event
// later than the Reviewer, and which therefore still allows a revoked request.
func TestRevocationThatTheFirstReviewMisses(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	notified := f.notified.count(alice)

	f.bind(everywhere, "reader")
	f.wantNotified(alice, notified+1)
	// The answer of the next review is not cached.
	f.want(alice, true, 1, getA)
	f.want(alice, true, 1, getA)

	f.cluster.allow(false)
	f.after(200 * time.Millisecond)
	f.wantNotified(alice, notified+2)
	f.want(alice, false, 1, getA)
	f.after(time.Second)
	f.wantNotified(alice, notified+1+len(rechecks))
	f.want(alice, false, 1, getA)
	f.want(alice, false, 0, getA)
}

// TestRevocationThatTheFirstRecheckMisses simulates an API server that is slower than the first
// recheck.
func TestRevocationThatTheFirstRecheckMisses(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	notified := f.notified.count(alice)
	f.bind(everywhere, "reader")
	f.after(200 * time.Millisecond)
	f.wantNotified(alice, notified+2)
	f.want(alice, true, 1, getA)
	f.clock.Step(700 * time.Millisecond)
	f.want(alice, true, 1, getA)
	f.cluster.allow(false)
	f.after(300 * time.Millisecond)
	f.wantNotified(alice, notified+1+len(rechecks))
	f.want(alice, false, 1, getA)
}

// TestRevocationThatAllEarlyRechecksMiss simulates an API server that is seconds behind. Its answers
// are not cached while they contradict RBAC.
func TestRevocationThatAllEarlyRechecksMiss(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	notified := f.notified.count(alice)
	f.bind(everywhere, "reader")
	f.after(lastRecheck + recheckStep)
	notified += 1 + len(rechecks)
	f.wantNotified(alice, notified)
	for i, delay := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond} {
		f.want(alice, true, 1, getA)
		f.want(alice, true, 1, getA)
		f.after(delay)
		f.wantNotified(alice, notified+i+1)
	}
	f.cluster.allow(false)
	f.want(alice, false, 1, getA)
	f.want(alice, false, 0, getA)
}

// TestRequestThatAnotherAuthorizerAllows checks that an answer that contradicts RBAC is cached again
// 30 seconds after the revocation.
func TestRequestThatAnotherAuthorizerAllows(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 2, getA, deleteA)
	f.bind(everywhere, "reader")
	f.clock.Step(lagging - time.Second)
	f.want(alice, true, 1, getA, deleteA)
	f.want(alice, true, 1, getA, deleteA)
	f.clock.Step(time.Second)
	f.want(alice, true, 1, getA, deleteA)
	f.want(alice, true, 0, getA, deleteA)
}

func TestFirstQuestionRightAfterAnEvent(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice, bob)
	f.clock.Step(time.Minute)
	f.bind(everywhere, "reader")
	f.clock.Step(50 * time.Millisecond)
	// No account has asked a question before, so none was notified.
	f.want(alice, true, 2, getA, deleteA)
	f.want(alice, true, 1, getA, deleteA)
	f.cluster.allow(false)
	f.after(150 * time.Millisecond)
	f.wantNotified(alice, 1)
	f.want(alice, false, 1, getA)
	f.after(time.Second)
	f.wantNotified(alice, len(rechecks))
	if notified := f.notified.count(bob); notified != 0 {
		t.Errorf("bob, who never asked, was notified %d times, want 0", notified)
	}
}

func TestEventsWithinOneSecond(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	f.bind(everywhere, "reader", alice)
	f.wantNotified(alice, 1)
	f.want(alice, true, 1, getA)
	// The answer from within the settling time is not cached, but the account is still notified.
	f.clock.Step(100 * time.Millisecond)
	f.bind(everywhere, "reader")
	f.wantNotified(alice, 2)
	// It is notified even if it has not asked again.
	f.bind(everywhere, "reader", alice)
	f.wantNotified(alice, 3)
}

func TestManyEventsInvalidateEverything(t *testing.T) {
	f := newWatchingFixture(t)
	for i := range 2 * maxUnsettled {
		name := fmt.Sprintf("r%d", i)
		f.role(name, rule("get", "", "configmaps", name))
		f.bind(rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: name}, name, bob)
	}
	if n := len(f.unsettled.events); n > maxUnsettled {
		t.Errorf("%d events are examined one by one, want at most %d", n, maxUnsettled)
	}
	f.want(alice, true, 1, deleteA)
	f.want(alice, true, 1, deleteA)
	f.clock.Step(settling)
	f.want(alice, true, 1, deleteA)
	f.want(alice, true, 0, deleteA)
}

func TestAnswerFromBeforeAnEvent(t *testing.T) {
	for name, again := range map[string]bool{"with a newer answer": true, "without a newer answer": false} {
		t.Run(name, func(t *testing.T) {
			f := newWatchingFixture(t)
			f.role("reader", rule("get", "", "configmaps"))
			f.bind(everywhere, "reader", alice)
			f.clock.Step(time.Minute)
			f.want(alice, true, 1, deleteA)
			begun, end := make(chan struct{}), make(chan struct{})
			f.cluster.setJudge(func(ctx context.Context, _ types.NamespacedName, _ Request) (authorizationv1.SubjectAccessReviewStatus, error) {
				close(begun)
				<-end
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
			})
			done := make(chan error, 1)
			go func() {
				_, err := f.Review(t.Context(), alice, []Request{getA}, 0)
				done <- err
			}()
			<-begun
			f.bind(everywhere, "reader")
			f.wantNotified(alice, 1)
			f.clock.Step(2 * time.Second)
			f.cluster.allow(false)
			if again {
				// A question after the event does not wait for an answer from before it.
				f.want(alice, false, 1, getA)
			}
			close(end)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			reviews := 1
			if again {
				reviews = 0
			}
			f.want(alice, false, reviews, getA)
		})
	}
}

func TestRelistInvalidatesUnwatchedAnswers(t *testing.T) {
	f := newWatchingFixture(t)
	k := newKind(f.Reviewer, f.watches, rbac.KindRoleBinding, "rolebindings", &rbacv1.RoleBinding{}, listWatcher[*rbacv1.RoleBindingList](nil))
	f.watches.kinds = []*kind{k}
	if err := k.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	f.clock.Step(time.Minute)
	if err := k.Bookmark(""); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(10 * time.Second)
	// No event contains a permission that was granted and revoked before the relist.
	f.want(alice, true, 1, getB)
	if err := k.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	f.wantNotified(alice, 1)
	f.want(alice, true, 0, getA)
	f.want(alice, true, 1, getB)
}
