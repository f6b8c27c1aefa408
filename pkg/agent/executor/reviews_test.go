package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

type (
	request = authorizationv1.ResourceAttributes
	answer  = authorizationv1.SubjectAccessReviewStatus
)

// fixture is reviews of a fake cluster, which answers with judge and counts the reviews.
type fixture struct {
	*reviews
	authorizationv1client.AuthorizationV1Interface
	authorizationv1client.SubjectAccessReviewInterface

	mu        sync.Mutex
	judge     func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error)
	asked     int
	now, most int
}

func newFixture() *fixture {
	f := &fixture{}
	f.reviews = newReviews(f)
	f.answerAll(answer{Allowed: true})
	return f
}

func (f *fixture) SubjectAccessReviews() authorizationv1client.SubjectAccessReviewInterface { return f }

func (f *fixture) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	f.mu.Lock()
	f.asked++
	f.now++
	f.most = max(f.most, f.now)
	judge := f.judge
	f.mu.Unlock()
	status, err := judge(ctx, &review.Spec)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	return &authorizationv1.SubjectAccessReview{Status: status}, err
}

// requests returns the number of reviews.
func (f *fixture) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fixture) setJudge(judge func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge = judge
}

func (f *fixture) answerAll(with answer) {
	f.setJudge(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error) { return with, nil })
}

// answerAfterASecond lets each review take one second of the fake clock of synctest.
func (f *fixture) answerAfterASecond(with answer, err error) {
	f.setJudge(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error) {
		time.Sleep(time.Second)
		return with, err
	})
}

func (f *fixture) ask(ctx context.Context, a *account, fresh bool, requests ...request) (map[request]decision, error) {
	return f.decide(ctx, a, userName(a.name), requests, fresh)
}

func newAccount(name string) *account {
	return &account{name: types.NamespacedName{Namespace: "team", Name: name}, slots: make(chan struct{}, parallelism)}
}

var alice, bob = newAccount("alice"), newAccount("bob")

func get(name string) request {
	return request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "team", Name: name}
}

func TestQuestionsDifferByAllAttributes(t *testing.T) {
	f := newFixture()
	var users []string
	f.setJudge(func(_ context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (answer, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		users = append(users, spec.User+" "+strings.Join(spec.Groups, ","))
		return answer{Allowed: spec.ResourceAttributes.Name == "a"}, nil
	})
	others := []request{get("a"), get("b")}
	for _, change := range []func(*request){
		func(r *request) { r.Verb = "list" }, func(r *request) { r.Group = "g" }, func(r *request) { r.Version = "v2" },
		func(r *request) { r.Resource = "secrets" }, func(r *request) { r.Namespace = "other" },
	} {
		other := get("a")
		change(&other)
		others = append(others, other)
	}
	for _, a := range []*account{alice, bob} {
		decisions, err := f.ask(t.Context(), a, false, slices.Concat(others, others)...)
		if err != nil || len(decisions) != len(others) || !decisions[get("a")].allowed || decisions[get("b")].allowed {
			t.Errorf("decide() of %s = %v, %v, want a different decision on b only", a.name, decisions, err)
		}
	}
	if f.asked != 2*len(others) {
		t.Errorf("reviews = %d, want %d", f.asked, 2*len(others))
	}
	for _, want := range []string{"alice", "bob"} {
		want = "system:serviceaccount:team:" + want + " system:serviceaccounts,system:serviceaccounts:team,system:authenticated"
		if !slices.Contains(users, want) {
			t.Errorf("users of reviews = %v, want %s", users, want)
		}
	}
}

// TestAgeOfAnswers uses the fake clock of synctest, so it takes no time.
func TestAgeOfAnswers(t *testing.T) {
	for allowed, age := range map[bool]time.Duration{true: allowedAge, false: deniedAge} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			f.answerAll(answer{Allowed: allowed})
			for _, step := range []struct {
				wait  time.Duration
				fresh bool
				asked int
			}{{asked: 1}, {wait: age - time.Millisecond, asked: 1}, {wait: 2 * time.Millisecond, asked: 2}, {fresh: true, asked: 3}, {asked: 3}} {
				time.Sleep(step.wait)
				decisions, err := f.ask(t.Context(), alice, step.fresh, get("a"))
				if err != nil || decisions[get("a")].allowed != allowed || f.asked != step.asked {
					t.Errorf("after %s, fresh %t: decide() = %v, %v with %d reviews, want allowed = %t with %d", step.wait, step.fresh, decisions, err, f.asked, allowed, step.asked)
				}
			}
		})
	}
}

func TestReviewsAreParallelAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.answerAfterASecond(answer{Allowed: true}, nil)
		var running sync.WaitGroup
		ask := func(a *account, prefix string) {
			var requests []request
			for i := range 100 {
				requests = append(requests, get(fmt.Sprint(prefix, i)))
			}
			running.Go(func() {
				if _, err := f.ask(t.Context(), a, false, requests...); err != nil {
					t.Error(err)
				}
			})
		}
		a := newAccount("busy")
		ask(a, "a")
		ask(a, "b")
		running.Wait()
		if f.most != parallelism {
			t.Errorf("parallel reviews of one executor = %d, want %d", f.most, parallelism)
		}
		for i := range 6 {
			ask(newAccount(fmt.Sprint("tenant", i)), "c")
		}
		running.Wait()
		if f.most != maxParallelism || f.asked != 800 {
			t.Errorf("parallel reviews of six executors = %d of %d, want %d of 800", f.most, f.asked, maxParallelism)
		}
	})
}

func TestEqualQuestionsShareAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFixture(), newAccount("alice")
		f.answerAfterASecond(answer{Allowed: true}, nil)
		first, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if _, err := f.ask(first, a, false, get("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("decide() of the canceled caller = %v, want Canceled", err)
			}
		})
		for range 20 {
			running.Go(func() {
				if decisions, err := f.ask(t.Context(), a, false, get("a"), get("b")); err != nil || !decisions[get("a")].allowed {
					t.Errorf("decide() = %v, %v, want allowed", decisions, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		running.Wait()
		if f.asked != 2 {
			t.Errorf("reviews = %d, want 2", f.asked)
		}
	})
}

// names returns questions for n objects.
func names(n int) []request {
	var requests []request
	for i := range n {
		requests = append(requests, get(fmt.Sprint("a", i)))
	}
	return requests
}

// TestEndedCheckSendsNoReviews checks that a check that fails or is canceled sends no further review,
// also not later, and that it does not wait for reviews of others.
func TestEndedCheckSendsNoReviews(t *testing.T) {
	t.Run("a review fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			f.answerAfterASecond(answer{}, errors.New("out of order"))
			if _, err := f.ask(t.Context(), newAccount("alice"), false, names(1000)...); err == nil || !strings.Contains(err.Error(), "out of order") {
				t.Errorf("decide() = %v, want the error of the review", err)
			}
			time.Sleep(time.Hour)
			if got := f.requests(); got != parallelism {
				t.Errorf("reviews = %d, want the %d that were in flight at the first failure", got, parallelism)
			}
		})
	})
	t.Run("the check is canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, a := newFixture(), newAccount("alice")
			f.answerAfterASecond(answer{Allowed: true}, nil)
			var running sync.WaitGroup
			running.Go(func() {
				if _, err := f.ask(t.Context(), a, false, names(parallelism)...); err != nil {
					t.Errorf("decide() of the other check = %v, want nil", err)
				}
			})
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			running.Go(func() {
				if _, err := f.ask(ctx, a, true, names(1000)...); !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
					t.Errorf("decide() of the canceled check = %v after %s, want Canceled at once", err, time.Since(began))
				}
			})
			synctest.Wait()
			cancel()
			running.Wait()
			time.Sleep(time.Hour)
			if got := f.requests(); got != parallelism {
				t.Errorf("reviews = %d, want the %d of the other check", got, parallelism)
			}
		})
	})
}

// TestFreshCheckUsesNoReviewInFlight checks that a fresh check does not take the answer of a review that
// was sent before.
func TestFreshCheckUsesNoReviewInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFixture(), newAccount("alice")
		f.answerAfterASecond(answer{Allowed: true}, nil)
		var running sync.WaitGroup
		running.Go(func() {
			if _, err := f.ask(t.Context(), a, false, get("a")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		f.answerAll(answer{})
		if decisions, err := f.ask(t.Context(), a, true, get("a")); err != nil || decisions[get("a")].allowed {
			t.Errorf("decide() of the fresh check = %v, %v, want denied", decisions, err)
		}
		running.Wait()
	})
}

// TestFreshCheckUsesNoKeptAnswer checks that a fresh check does not join another check that uses an answer from before
// the call. The reason of each answer is its number.
func TestFreshCheckUsesNoKeptAnswer(t *testing.T) {
	f := newFixture()
	var last atomic.Int64
	f.setJudge(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error) {
		return answer{Allowed: true, Reason: fmt.Sprint(last.Add(1))}, nil
	})
	q := question{user: userName(alice.name), request: get("a")}
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			f.answers.Add(q, decision{reason: "0"}, time.Minute)
			runtime.Gosched()
		}
	})
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				f.answers.Remove(q)
				_, _ = f.answer(ctx, newAccount("alice"), q, false)
			}
		})
	}
	for range 30_000 { // the time in which a check could join is short
		before := last.Load()
		got, err := f.answer(ctx, alice, q, true)
		if number, _ := strconv.ParseInt(got.reason, 10, 64); err != nil || number <= before {
			t.Errorf("answer() of a fresh check = %v, %v, want an answer after number %d", got, err, before)
			break
		}
	}
	cancel()
	others.Wait()
}

func TestFailuresAreNotKept(t *testing.T) {
	for name, broken := range map[string]struct {
		status answer
		err    error
	}{
		"the cluster fails":   {err: errors.New("out of order")},
		"an authorizer fails": {status: answer{EvaluationError: "out of order"}},
	} {
		f := newFixture()
		f.setJudge(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (answer, error) {
			return broken.status, broken.err
		})
		if decisions, err := f.ask(t.Context(), alice, false, get("a")); err == nil || decisions != nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("%s: decide() = %v, %v, want the error", name, decisions, err)
		}
		f.answerAll(answer{Allowed: true})
		if decisions, err := f.ask(t.Context(), alice, false, get("a")); err != nil || !decisions[get("a")].allowed {
			t.Errorf("%s: the next decide() = %v, %v, want allowed", name, decisions, err)
		}
	}
}

func TestDecisionOf(t *testing.T) {
	for name, test := range map[string]struct {
		status answer
		want   decision
		fails  bool
	}{
		"allowed":                   {status: answer{Allowed: true, Reason: "r"}, want: decision{allowed: true, reason: "r"}},
		"allowed, another fails":    {status: answer{Allowed: true, EvaluationError: "e"}, want: decision{allowed: true}},
		"no opinion":                {status: answer{Reason: "r"}, want: decision{reason: "r"}},
		"denied":                    {status: answer{Denied: true, EvaluationError: "e"}},
		"both":                      {status: answer{Allowed: true, Denied: true}},
		"no opinion, another fails": {status: answer{EvaluationError: "e"}, fails: true},
	} {
		if got, err := decisionOf(test.status); got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: decisionOf(%+v) = %+v, %v, want %+v", name, test.status, got, err, test.want)
		}
	}
}
