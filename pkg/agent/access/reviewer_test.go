package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	getA    = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "a"}
	getB    = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "b"}
	getFar  = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "other", Name: "a"}
	deleteA = Request{Verb: "delete", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "a"}

	everywhere = objectKey{Name: "everywhere"}
)

func TestAnswersAreKeptByAllAttributes(t *testing.T) {
	f := newWatchingFixture(t)
	requests := []Request{getA}
	for _, edit := range []func(*Request){
		func(r *Request) { r.Verb = "update" }, func(r *Request) { r.Group = "apps" }, func(r *Request) { r.Version = "v2" },
		func(r *Request) { r.Resource = "secrets" }, func(r *Request) { r.Resource = "configmaps/status" },
		func(r *Request) { r.Namespace = "other" }, func(r *Request) { r.Name = "b" },
	} {
		request := getA
		edit(&request)
		requests = append(requests, request)
	}
	// The cluster allows every second one.
	f.cluster.setJudge(func(_ context.Context, account types.NamespacedName, request Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		for i, r := range requests {
			if r == request {
				return authorizationv1.SubjectAccessReviewStatus{Allowed: (i%2 == 0) == (account == alice), Reason: fmt.Sprint(i)}, nil
			}
		}
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("unexpected request %+v", request)
	})
	for pass, asked := range []int{len(requests), 0} {
		for _, account := range []types.NamespacedName{alice, bob} {
			got, n := f.review(account, 0, requests...)
			for i := range requests {
				if got[i] != ((i%2 == 0) == (account == alice)) {
					t.Errorf("pass %d, %s, %+v: allowed %t", pass, account, requests[i], got[i])
				}
			}
			if n != asked {
				t.Errorf("pass %d asked the cluster %d times", pass, n)
			}
		}
	}
	decisions, err := f.Review(t.Context(), alice, requests[3:4], 0)
	if err != nil || decisions[0].Reason != "3" {
		t.Errorf("%+v, %v", decisions, err)
	}
}

func TestOneRequestTwiceIsOneQuestion(t *testing.T) {
	f := newWatchingFixture(t)
	f.want(alice, true, 2, getA, getA, getB, getA)
}

func TestAllowedAnswersAreAsOldAsTheCallerLikes(t *testing.T) {
	f := newWatchingFixture(t)
	f.want(alice, true, 1, getA)
	f.clock.Step(11 * time.Minute)
	f.want(alice, true, 0, getA)
	if _, asked := f.review(alice, 12*time.Minute, getA); asked != 0 {
		t.Errorf("asked %d times", asked)
	}
	if _, asked := f.review(alice, 10*time.Minute, getA); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if _, asked := f.review(alice, 10*time.Minute, getA); asked != 0 {
		t.Errorf("asked %d times", asked)
	}
}

func TestDenialsAreHalfAMinuteOldAtMost(t *testing.T) {
	f := newWatchingFixture(t)
	f.cluster.allow(false)
	f.want(alice, false, 1, getA)
	f.clock.Step(29 * time.Second)
	f.want(alice, false, 0, getA)
	f.clock.Step(2 * time.Second)
	f.want(alice, false, 1, getA)
}

func TestAnswersAreShortlivedWhileRBACIsNotWatched(t *testing.T) {
	forbidden := &kind{resource: "roles", seen: true, err: errors.New("not now")}
	for name, setUp := range map[string]func(*testing.T) *fixture{
		"Run does not run": newFixture,
		"a kind cannot be watched": func(t *testing.T) *fixture {
			f := newWatchingFixture(t)
			f.watches.kinds = append(f.watches.kinds, forbidden)
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := setUp(t)
			f.want(alice, true, 1, getA)
			f.clock.Step(9 * time.Second)
			f.want(alice, true, 0, getA)
			f.clock.Step(2 * time.Second)
			f.want(alice, true, 1, getA)
		})
	}
	t.Run("answers from before", func(t *testing.T) {
		f := newWatchingFixture(t)
		f.want(alice, true, 1, getA)
		f.clock.Step(time.Minute)
		f.want(alice, true, 0, getA)
		f.watches.kinds = append(f.watches.kinds, forbidden)
		f.want(alice, true, 1, getA)
	})
}

func TestNobodyIsToldOfWhatNobodyAsksAnyMore(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	f.bind(everywhere, "reader", alice)
	f.wantTold(alice, 1)
	f.after(200 * time.Millisecond)
	f.wantTold(alice, 2)
	f.after(2 * time.Second)
	f.wantTold(alice, 1+len(rechecks))
	before := f.told.count(alice)
	f.clock.Step(unaskedAge)
	f.bind(everywhere, "reader")
	f.after(200 * time.Millisecond)
	f.after(2 * time.Second)
	if told := f.told.count(alice); told != before {
		t.Errorf("told %d times more", told-before)
	}
	if len(f.cache.accounts) != 0 || f.cache.recent.Len() != 0 {
		t.Errorf("%d accounts and %d answers are left", len(f.cache.accounts), f.cache.recent.Len())
	}
}

func TestForget(t *testing.T) {
	f := newWatchingFixture(t)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 2, getA, deleteA)
	f.want(bob, true, 1, getA)
	f.Forget(alice)
	f.Forget(carol)
	f.bind(everywhere, "reader", alice, bob)
	f.wantTold(bob, 1)
	if told := f.told.count(alice); told != 0 {
		t.Errorf("told %d times", told)
	}
	f.clock.Step(2 * time.Second)
	f.want(alice, true, 1, deleteA)
}

func TestRememberedAnswersAreBounded(t *testing.T) {
	f := newWatchingFixture(t)
	f.cache = newCache(10)
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps", "a0"))
	f.clock.Step(time.Minute)
	var requests []Request
	for i := range 25 {
		requests = append(requests, Request{Verb: "get", Resource: "configmaps", Namespace: "team", Name: fmt.Sprintf("a%d", i)})
	}
	for _, request := range requests {
		f.want(alice, true, 1, request)
	}
	if n := f.cache.recent.Len(); n != 10 {
		t.Errorf("%d answers are remembered", n)
	}
	if n := len(f.cache.accounts[alice].answers["team"]); n != 10 {
		t.Errorf("%d answers are indexed", n)
	}
	f.want(alice, true, 0, requests[15:]...)
	// That there was an answer about a0 is not known any more.
	f.bind(everywhere, "reader", alice)
	f.wantTold(alice, 1)
	// An account whose answers are all gone may still want to know.
	for _, request := range requests[:10] {
		f.want(bob, true, 1, request)
	}
	if n := len(f.cache.accounts[alice].answers); n != 0 {
		t.Errorf("answers in %d namespaces are indexed", n)
	}
	before := f.told.count(alice)
	f.bind(everywhere, "reader")
	f.wantTold(alice, before+1)
	f.Forget(alice)
	if f.cache.accounts[alice] != nil {
		t.Error("an account that nobody wants to know of is remembered")
	}
}

func TestReviewsAreParallelAndBounded(t *testing.T) {
	f := newWatchingFixture(t)
	var mu sync.Mutex
	waiting, all := 0, make(chan struct{})
	f.cluster.setJudge(func(ctx context.Context, _ types.NamespacedName, _ Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		mu.Lock()
		if waiting++; waiting == parallelism {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		case <-ctx.Done():
			return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
		}
	})
	var running sync.WaitGroup
	for _, account := range []types.NamespacedName{alice, bob, carol} {
		var requests []Request
		for i := range 100 {
			requests = append(requests, Request{Verb: "get", Resource: "configmaps", Namespace: "team", Name: fmt.Sprintf("a%d", i)})
		}
		running.Go(func() {
			if _, err := f.Review(t.Context(), account, requests, 0); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if f.cluster.most != parallelism {
		t.Errorf("%d reviews were under way at once", f.cluster.most)
	}
	if asked := len(f.cluster.takeAsked()); asked != 300 {
		t.Errorf("%d reviews", asked)
	}
}

func TestOneQuestionAtOnceIsAskedOnce(t *testing.T) {
	f := newWatchingFixture(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.cluster.setJudge(func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		once.Do(func() { close(begun) })
		<-end
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
	})
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			if decisions, err := f.Review(t.Context(), alice, []Request{getA, getB}, 0); err != nil || !decisions[0].Allowed || !decisions[1].Allowed {
				t.Errorf("%v, %v", decisions, err)
			}
		})
	}
	<-begun
	close(end)
	running.Wait()
	if asked := len(f.cluster.takeAsked()); asked != 2 {
		t.Errorf("%d reviews", asked)
	}
}

func TestACallerThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	f := newWatchingFixture(t)
	begun := make(chan struct{})
	var once sync.Once
	f.cluster.setJudge(func(ctx context.Context, _ types.NamespacedName, _ Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		once.Do(func() { close(begun) })
		<-ctx.Done()
		return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := f.Review(ctx, alice, []Request{getA}, 0)
		first <- err
	}()
	<-begun
	second := make(chan error, 1)
	go func() {
		_, err := f.Review(t.Context(), alice, []Request{getA}, 0)
		second <- err
	}()
	f.cluster.allow(true)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who gave up: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the other: %v", err)
	}
}

func TestWhatCannotBeAskedIsAnErrorAndNotRemembered(t *testing.T) {
	for name, broken := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		err    error
	}{
		"the cluster fails":          {err: errors.New("out of order")},
		"an authorizer cannot judge": {status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "out of order"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newWatchingFixture(t)
			f.cluster.setJudge(func(_ context.Context, _ types.NamespacedName, request Request) (authorizationv1.SubjectAccessReviewStatus, error) {
				if request == getB {
					return broken.status, broken.err
				}
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
			})
			f.want(alice, true, 1, getA)
			decisions, err := f.Review(t.Context(), alice, []Request{getA, getB}, 0)
			if err == nil || decisions != nil || !strings.Contains(err.Error(), "out of order") || !strings.Contains(err.Error(), "team/alice") {
				t.Errorf("%v, %v", decisions, err)
			}
			f.cluster.allow(true)
			f.want(alice, true, 1, getA, getB)
		})
	}
	t.Run("the context has ended", func(t *testing.T) {
		f := newWatchingFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if decisions, err := f.Review(ctx, alice, []Request{getA}, 0); !errors.Is(err, context.Canceled) || decisions != nil {
			t.Errorf("%v, %v", decisions, err)
		}
	})
}

func TestWhatAuthorizersSay(t *testing.T) {
	for name, test := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   Decision
		fails  bool
	}{
		"allowed":                             {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "r"}, want: Decision{Allowed: true, Reason: "r"}},
		"allowed though another cannot judge": {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "e"}, want: Decision{Allowed: true}},
		"no opinion":                          {status: authorizationv1.SubjectAccessReviewStatus{Reason: "r"}, want: Decision{Reason: "r"}},
		"denied":                              {status: authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "e"}},
		"both":                                {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}},
		"no opinion, and one cannot judge":    {status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "e"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decisionOf(test.status)
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestRulesAreToldOf(t *testing.T) {
	f := newWatchingFixture(t)
	roleRef := rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}
	if rules, known, err := f.RoleRules(t.Context(), bob, roleRef, "team"); err != nil || known || rules != nil {
		t.Errorf("%v, %t, %v", rules, known, err)
	}
	f.role(objectKey{Name: "reader"}, rule("get", "", "configmaps"))
	f.wantTold(bob, 1)
	rules, known, err := f.RoleRules(t.Context(), bob, roleRef, "")
	if err != nil || !known || len(rules) != 1 {
		t.Errorf("%v, %t, %v", rules, known, err)
	}
	if rules, err := f.Rules(t.Context(), alice, "team"); err != nil || len(rules) != 0 {
		t.Errorf("%v, %v", rules, err)
	}
	f.bind(objectKey{Namespace: "other", Name: "b"}, "reader", alice)
	if told := f.told.count(alice); told != 0 {
		t.Errorf("told %d times of a namespace that it did not ask about", told)
	}
	f.bind(objectKey{Namespace: "team", Name: "b"}, "reader", alice)
	f.wantTold(alice, 1)
	if rules, err := f.Rules(t.Context(), alice, "team"); err != nil || len(rules) != 1 {
		t.Errorf("%v, %v", rules, err)
	}
	if _, known, err := f.RoleRules(t.Context(), bob, rbacv1.RoleRef{Kind: "Role", Name: "reader"}, ""); err != nil || known {
		t.Errorf("a Role of no namespace: %t, %v", known, err)
	}
}

func TestRulesWithoutWatches(t *testing.T) {
	f := newFixture(t)
	failed := make(chan error, 1)
	go func() {
		_, err := f.Rules(t.Context(), alice, "")
		failed <- err
	}()
	// Run may be about to begin.
	f.after(rulesTimeout - time.Second)
	select {
	case err := <-failed:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	f.after(time.Second)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "does not watch RBAC") || !strings.Contains(err.Error(), "team/alice") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.RoleRules(ctx, alice, rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
