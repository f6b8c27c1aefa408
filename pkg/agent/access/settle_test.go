package access

import (
	"context"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnEventForgetsWhatItConcerns(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 4, getA, getB, getFar, deleteA)
	f.want(bob, true, 2, getA, deleteA)

	f.bind(objectKey{Namespace: "team", Name: "b"}, "reader", alice)
	f.wantTold(alice, 1)
	f.clock.Step(10 * time.Second)
	f.want(alice, true, 0, getFar, deleteA)
	f.want(alice, true, 2, getA, getB, getFar, deleteA)
	f.want(bob, true, 0, getA, deleteA)
	if told := f.told.count(bob); told != 0 {
		t.Errorf("bob was told %d times", told)
	}
}

// An API server whose authorizer learns of an event later than the Reviewer still
// says yes to what is revoked.
func TestARevokedPermissionThatTheFirstReviewStillAllows(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	told := f.told.count(alice)

	f.bind(everywhere, "reader")
	f.wantTold(alice, told+1)
	// The review that this leads to.
	f.want(alice, true, 1, getA)
	// It counts for nothing.
	f.want(alice, true, 1, getA)

	f.cluster.allow(false)
	f.after(200 * time.Millisecond)
	f.wantTold(alice, told+2)
	f.want(alice, false, 1, getA)
	f.after(time.Second)
	f.wantTold(alice, told+1+len(rechecks))
	f.want(alice, false, 1, getA)
	f.want(alice, false, 0, getA)
}

// The same of an API server that is slower than the first time that is looked again.
func TestARevokedPermissionThatIsStillAllowedAfterTheFirstRecheck(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice)
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	told := f.told.count(alice)
	f.bind(everywhere, "reader")
	f.after(200 * time.Millisecond)
	f.wantTold(alice, told+2)
	f.want(alice, true, 1, getA)
	f.clock.Step(700 * time.Millisecond)
	f.want(alice, true, 1, getA)
	f.cluster.allow(false)
	f.after(300 * time.Millisecond)
	f.wantTold(alice, told+1+len(rechecks))
	f.want(alice, false, 1, getA)
}

func TestAnAccountThatFirstAsksRightAfterAnEventIsToldAgain(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.bind(everywhere, "reader", alice, bob)
	f.clock.Step(time.Minute)
	f.bind(everywhere, "reader")
	f.clock.Step(50 * time.Millisecond)
	// Nobody had asked before, so nobody was told.
	f.want(alice, true, 2, getA, deleteA)
	f.want(alice, true, 1, getA, deleteA)
	f.cluster.allow(false)
	f.after(150 * time.Millisecond)
	f.wantTold(alice, 1)
	f.want(alice, false, 1, getA)
	f.after(time.Second)
	f.wantTold(alice, len(rechecks))
	if told := f.told.count(bob); told != 0 {
		t.Errorf("bob, who never asked, was told %d times", told)
	}
}

func TestEventsInOneSecondAreAllTold(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	f.bind(everywhere, "reader", alice)
	f.wantTold(alice, 1)
	f.want(alice, true, 1, getA)
	// What was asked within the second is not kept, but is still of interest.
	f.clock.Step(100 * time.Millisecond)
	f.bind(everywhere, "reader")
	f.wantTold(alice, 2)
	// And so is what nobody has asked again.
	f.bind(everywhere, "reader", alice)
	f.wantTold(alice, 3)
}

func TestAStormOfEventsForgetsEverything(t *testing.T) {
	f := newWatchingFixture(t)
	for i := range 2 * maxUnsettled {
		name := fmt.Sprintf("r%d", i)
		f.role(objectKey{Name: name}, rule("get", "", "configmaps", name))
		f.bind(objectKey{Name: name}, name, bob)
	}
	if n := len(f.unsettled.events); n > maxUnsettled {
		t.Errorf("%d events are looked at one by one", n)
	}
	f.want(alice, true, 1, deleteA)
	f.want(alice, true, 1, deleteA)
	f.clock.Step(settling)
	f.want(alice, true, 1, deleteA)
	f.want(alice, true, 0, deleteA)
}

func TestAnAnswerFromBeforeAnEventIsNotKept(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
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
	f.wantTold(alice, 1)
	f.clock.Step(2 * time.Second)
	f.cluster.allow(false)
	// Whoever asks after the event does not wait for an answer from before it.
	f.want(alice, false, 1, getA)
	close(end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.want(alice, false, 0, getA)
}

func TestARelistForgetsWhatWasAskedWhileNothingWasWatched(t *testing.T) {
	f := newWatchingFixture(t)
	k := bindings(f.Reviewer, f.watches, "rolebindings", false, listWatcher[*rbacv1.RoleBindingList](nil), func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects })
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
	// A permission that came and went before the relist is in no event.
	f.want(alice, true, 1, getB)
	if err := k.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	f.wantTold(alice, 1)
	f.want(alice, true, 0, getA)
	f.want(alice, true, 1, getB)
}
