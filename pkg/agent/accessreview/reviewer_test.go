package accessreview

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

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

var (
	getA    = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "a"}
	getB    = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "b"}
	getFar  = Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "other", Name: "a"}
	deleteA = Request{Verb: "delete", Version: "v1", Resource: "configmaps", Namespace: "team", Name: "a"}

	everywhere = rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: "everywhere"}
)

func TestAnswersDifferByAllAttributes(t *testing.T) {
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
	// For alice, the cluster allows every second request; for bob, it allows the others.
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
					t.Errorf("pass %d: Review(%s, %+v) = %t, want %t", pass, account, requests[i], got[i], !got[i])
				}
			}
			if n != asked {
				t.Errorf("pass %d: Review(%s) sent %d requests to the cluster, want %d", pass, account, n, asked)
			}
		}
	}
	decisions, err := f.Review(t.Context(), alice, requests[3:4], 0)
	if err != nil || decisions[0].Reason != "3" {
		t.Errorf("Review() = %+v, %v, want reason 3", decisions, err)
	}
}

func TestRepeatedRequests(t *testing.T) {
	f := newWatchingFixture(t)
	f.want(alice, true, 2, getA, getA, getB, getA)
}

func TestMaxAgeOfAllowedAnswers(t *testing.T) {
	f := newWatchingFixture(t)
	f.want(alice, true, 1, getA)
	f.clock.Step(11 * time.Minute)
	f.want(alice, true, 0, getA)
	if _, asked := f.review(alice, 12*time.Minute, getA); asked != 0 {
		t.Errorf("Review() sent %d requests to the cluster, want 0", asked)
	}
	if _, asked := f.review(alice, 10*time.Minute, getA); asked != 1 {
		t.Errorf("Review() sent %d requests to the cluster, want 1", asked)
	}
	if _, asked := f.review(alice, 10*time.Minute, getA); asked != 0 {
		t.Errorf("Review() sent %d requests to the cluster, want 0", asked)
	}
}

func TestMaxAgeOfDenials(t *testing.T) {
	f := newWatchingFixture(t)
	f.cluster.allow(false)
	f.want(alice, false, 1, getA)
	f.clock.Step(29 * time.Second)
	f.want(alice, false, 0, getA)
	f.clock.Step(2 * time.Second)
	f.want(alice, false, 1, getA)
}

func TestMaxAgeWhileRBACIsNotWatched(t *testing.T) {
	forbidden := &kind{resource: "roles", seen: true, err: errors.New("not now")}
	for name, setUp := range map[string]func(*testing.T) *fixture{
		"Run is not running": newFixture,
		"the watch of a kind fails": func(t *testing.T) *fixture {
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
	t.Run("answers from before the watch", func(t *testing.T) {
		f := newWatchingFixture(t)
		f.want(alice, true, 1, getA)
		f.clock.Step(time.Minute)
		f.want(alice, true, 0, getA)
		f.watches.kinds = append(f.watches.kinds, forbidden)
		f.want(alice, true, 1, getA)
	})
}

func TestNotificationsEndWithoutQuestions(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 1, getA)
	f.bind(everywhere, "reader", alice)
	f.wantNotified(alice, 1)
	f.after(200 * time.Millisecond)
	f.wantNotified(alice, 2)
	f.after(2 * time.Second)
	f.wantNotified(alice, 1+len(rechecks))
	before := f.notified.count(alice)
	f.clock.Step(unaskedAge)
	f.bind(everywhere, "reader")
	f.after(200 * time.Millisecond)
	f.after(2 * time.Second)
	if notified := f.notified.count(alice); notified != before {
		t.Errorf("alice was notified %d times more, want 0", notified-before)
	}
	if len(f.cache.accounts) != 0 || f.cache.recent.Len() != 0 {
		t.Errorf("the cache has %d accounts and %d answers, want none", len(f.cache.accounts), f.cache.recent.Len())
	}
}

func TestForget(t *testing.T) {
	f := newWatchingFixture(t)
	f.role("reader", rule("get", "", "configmaps"))
	f.clock.Step(time.Minute)
	f.want(alice, true, 2, getA, deleteA)
	f.want(bob, true, 1, getA)
	f.Forget(alice)
	f.Forget(carol)
	f.bind(everywhere, "reader", alice, bob)
	f.wantNotified(bob, 1)
	if notified := f.notified.count(alice); notified != 0 {
		t.Errorf("alice was notified %d times, want 0", notified)
	}
	f.clock.Step(2 * time.Second)
	f.want(alice, true, 1, deleteA)
}

func TestCacheIsBounded(t *testing.T) {
	f := newWatchingFixture(t)
	f.cache = newCache(10)
	f.role("reader", rule("get", "", "configmaps", "a0"))
	f.clock.Step(time.Minute)
	var requests []Request
	for i := range 25 {
		requests = append(requests, Request{Verb: "get", Resource: "configmaps", Namespace: "team", Name: fmt.Sprintf("a%d", i)})
	}
	for _, request := range requests {
		f.want(alice, true, 1, request)
	}
	if n := f.cache.recent.Len(); n != 10 {
		t.Errorf("the cache has %d answers, want 10", n)
	}
	if n := len(f.cache.accounts[alice].answers["team"]); n != 10 {
		t.Errorf("the account has %d answers, want 10", n)
	}
	f.want(alice, true, 0, requests[15:]...)
	// Requests[0] was evicted.
	f.bind(everywhere, "reader", alice)
	f.wantNotified(alice, 1)
	// An account whose answers are all evicted is still notified.
	for _, request := range requests[:10] {
		f.want(bob, true, 1, request)
	}
	if n := len(f.cache.accounts[alice].answers); n != 0 {
		t.Errorf("the account has answers in %d namespaces, want 0", n)
	}
	before := f.notified.count(alice)
	f.bind(everywhere, "reader")
	f.wantNotified(alice, before+1)
	f.Forget(alice)
	if f.cache.accounts[alice] != nil {
		t.Error("the cache has an account after Forget, want none")
	}
}

func TestReviewsAreParallelAndBounded(t *testing.T) {
	f := newWatchingFixture(t)
	accounts := []types.NamespacedName{alice, bob, carol}
	most := len(accounts) * parallelism
	var mu sync.Mutex
	waiting, all := 0, make(chan struct{})
	f.cluster.setJudge(func(ctx context.Context, _ types.NamespacedName, _ Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		mu.Lock()
		if waiting++; waiting == most {
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
	for _, account := range accounts {
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
	if f.cluster.most != most {
		t.Errorf("parallel reviews of %d accounts = %d, want %d", len(accounts), f.cluster.most, most)
	}
	if asked := len(f.cluster.takeAsked()); asked != 300 {
		t.Errorf("reviews = %d, want 300", asked)
	}
}

func TestParallelQuestionsShareAReview(t *testing.T) {
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
				t.Errorf("Review() = %v, %v, want both allowed", decisions, err)
			}
		})
	}
	<-begun
	close(end)
	running.Wait()
	if asked := len(f.cluster.takeAsked()); asked != 2 {
		t.Errorf("the cluster received %d reviews, want 2", asked)
	}
}

func TestCancelledCallerDoesNotFailOthers(t *testing.T) {
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
		t.Errorf("Review() of the cancelled caller = %v, want Canceled", err)
	}
	if err := <-second; err != nil {
		t.Errorf("Review() of the other caller = %v, want nil", err)
	}
}

func TestFailuresAreNotCached(t *testing.T) {
	for name, broken := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		err    error
	}{
		"the cluster fails":   {err: errors.New("out of order")},
		"an authorizer fails": {status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "out of order"}},
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
				t.Errorf("Review() = %v, %v, want the error of team/alice", decisions, err)
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
			t.Errorf("Review() = %v, %v, want Canceled", decisions, err)
		}
	})
}

func TestDecisionOf(t *testing.T) {
	for name, test := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   Decision
		fails  bool
	}{
		"allowed":                   {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "r"}, want: Decision{Allowed: true, Reason: "r"}},
		"allowed, another fails":    {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "e"}, want: Decision{Allowed: true}},
		"no opinion":                {status: authorizationv1.SubjectAccessReviewStatus{Reason: "r"}, want: Decision{Reason: "r"}},
		"denied":                    {status: authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "e"}},
		"both":                      {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}},
		"no opinion, another fails": {status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "e"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decisionOf(test.status)
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("decisionOf(%+v) = %+v, %v, want %+v", test.status, got, err, test.want)
			}
		})
	}
}

func TestChangesOfRulesAreNotified(t *testing.T) {
	f := newWatchingFixture(t)
	roleRef := rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}
	if rules, known, err := f.RoleRules(t.Context(), bob, roleRef, "team"); err != nil || known || rules != nil {
		t.Errorf("RoleRules(unknown role) = %v, %t, %v, want none", rules, known, err)
	}
	f.role("reader", rule("get", "", "configmaps"))
	f.wantNotified(bob, 1)
	rules, known, err := f.RoleRules(t.Context(), bob, roleRef, "")
	if err != nil || !known || len(rules) != 1 {
		t.Errorf("RoleRules() = %v, %t, %v, want one rule", rules, known, err)
	}
	if rules, err := f.Rules(t.Context(), alice, "team"); err != nil || len(rules) != 0 {
		t.Errorf("Rules() = %v, %v, want none", rules, err)
	}
	f.bind(rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "other", Name: "b"}, "reader", alice)
	if notified := f.notified.count(alice); notified != 0 {
		t.Errorf("alice was notified %d times about another namespace, want 0", notified)
	}
	f.bind(rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "team", Name: "b"}, "reader", alice)
	f.wantNotified(alice, 1)
	if rules, err := f.Rules(t.Context(), alice, "team"); err != nil || len(rules) != 1 {
		t.Errorf("Rules() = %v, %v, want one rule", rules, err)
	}
	if _, known, err := f.RoleRules(t.Context(), bob, rbacv1.RoleRef{Kind: "Role", Name: "reader"}, ""); err != nil || known {
		t.Errorf("RoleRules(Role without a namespace) = %t, %v, want false", known, err)
	}
}

func TestRulesWithoutWatches(t *testing.T) {
	f := newFixture(t)
	failed := make(chan error, 1)
	go func() {
		_, err := f.Rules(t.Context(), alice, "")
		failed <- err
	}()
	// Rules waits, because Run may start soon.
	f.after(rulesTimeout - time.Second)
	select {
	case err := <-failed:
		t.Fatalf("Rules() = %v without a wait, want a wait for Run", err)
	default:
	}
	f.after(time.Second)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "does not watch RBAC") || !strings.Contains(err.Error(), "team/alice") {
		t.Errorf("Rules() = %v, want an error that names team/alice and contains \"does not watch RBAC\"", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.RoleRules(ctx, alice, rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("RoleRules() = %v, want Canceled", err)
	}
}
