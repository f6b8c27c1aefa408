package visibility_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

var (
	ann = &user.DefaultInfo{Name: "ann", Groups: []string{user.AllAuthenticated}}
	ben = &user.DefaultInfo{Name: "ben", Groups: []string{user.AllAuthenticated}}

	podInOne = named("x", hub("", "pods", "one"))
)

func TestGrantsAndRevocationsAreSeen(t *testing.T) {
	for _, mode := range []visibility.Mode{visibility.RBAC, visibility.Reviews} {
		t.Run(string(mode), func(t *testing.T) {
			h := startHub(t, visibility.Config{Mode: mode, ReviewTTL: time.Hour}, readPods)
			allows := func() bool { return h.scope(t, ann).Allows(podInOne) }
			denies := func() bool { return !allows() }
			eventually(t, "nothing is allowed", denies)
			changed, stop := h.Subscribe(ann)
			defer stop()
			h.bind(t, "one", "ann")
			told(t, "a binding was made", changed)
			eventually(t, "the binding counts", allows)
			h.grant(t, "get")
			told(t, "the role was changed", changed)
			eventually(t, "the role's rules count", denies)
			h.grant(t, "list")
			eventually(t, "the role's rules count again", allows)
			h.unbind(t, "one", "ann")
			eventually(t, "the lack of a binding counts", denies)
		})
	}
}

func TestOnlyThoseConcernedAreTold(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods+annInOne)
	before := h.scope(t, ann)
	annChanged, stopAnn := h.Subscribe(ann)
	defer stopAnn()
	benChanged, stopBen := h.Subscribe(ben)
	defer stopBen()

	// Events of one informer come in order: when the last is known, so are the others.
	h.bind(t, "two", "somebody")
	h.bind(t, "two", "ben")
	told(t, "ben is bound", benChanged)
	select {
	case <-annChanged:
		t.Error("ann was told about bindings of others")
	default:
	}
	// What does not allow lists is no change either.
	h.grant(t, "list", "get")
	h.grant(t, "list", "get", "delete")
	h.grant(t, "list", "create")
	h.bind(t, "two", "ann")
	told(t, "ann is bound", annChanged)
	if got := h.scope(t, ann); got == before || !got.Allows(named("x", hub("", "pods", "two"))) {
		t.Error("ann has not got what she was told of")
	}
	h.unbind(t, "two", "ann")
	told(t, "ann is not bound", annChanged)
	if got := h.scope(t, ann); got != before {
		t.Error("the Scope is another though it allows the same")
	}
}

func TestStoppedSubscriptionsAreNotTold(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods)
	stopped, stop := h.Subscribe(ann)
	stop()
	changed, stop := h.Subscribe(ann)
	defer stop()
	h.bind(t, "one", "ann")
	told(t, "a binding was made", changed)
	select {
	case <-stopped:
		t.Error("a stopped subscription was told")
	default:
	}
}

// TestIdentitiesWithoutUIDAreApart is about the public service, where all of them
// shared what was kept for the first.
func TestIdentitiesWithoutUIDAreApart(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews}, readPods)
	h.rules.Store("ann", authorizer.DecisionAllow)
	for _, test := range []struct {
		caller  *user.DefaultInfo
		allowed bool
	}{
		{&user.DefaultInfo{Name: "ann"}, true},
		{&user.DefaultInfo{Name: "ben"}, false},
		{&user.DefaultInfo{Name: "an", Groups: []string{"n"}}, false},
		{&user.DefaultInfo{}, false},
		{&user.DefaultInfo{Name: "ann", Groups: []string{"team"}}, true},
	} {
		if got := h.scope(t, test.caller).Allows(podInOne); got != test.allowed {
			t.Errorf("%+v: got %v, want %v", test.caller, got, test.allowed)
		}
	}
}

func TestExtraTellsIdentitiesApart(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews, ReviewTTL: time.Hour}, readPods)
	narrow := &user.DefaultInfo{Name: "cho", UID: "1", Extra: map[string][]string{"scopes": {"narrow"}}}
	wide := &user.DefaultInfo{Name: "cho", UID: "1", Extra: map[string][]string{"scopes": {"wide"}}}
	h.scope(t, narrow)
	h.rules.Store("cho", authorizer.DecisionAllow)
	if !h.scope(t, wide).Allows(podInOne) || h.scope(t, narrow).Allows(podInOne) {
		t.Error("identities that differ in extra share answers")
	}
}

func TestReadingRBACAsksNobody(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods+annInOne)
	if !h.scope(t, ann).Allows(podInOne) {
		t.Error("ann may not find what she may list")
	}
	if got := h.questions.Load(); got != 0 {
		t.Errorf("the hub was asked %d times", got)
	}
}

func TestNoScopeWithoutKnownPermissions(t *testing.T) {
	config := rbacConfig(fake.NewClientset())
	compiler, err := visibility.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compiler.Scope(t.Context(), ann); !errors.Is(err, visibility.ErrNotSynced) {
		t.Errorf("before: got %v, want %v", err, visibility.ErrNotSynced)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	compiler.Run(ended)
	if _, err := compiler.Scope(t.Context(), ann); !errors.Is(err, visibility.ErrNotSynced) {
		t.Errorf("afterwards: got %v, want %v", err, visibility.ErrNotSynced)
	}
}

func TestAutoAsksWhereRBACAloneDoesNotDecide(t *testing.T) {
	for _, test := range []struct {
		name       string
		incomplete bool
		caller     *user.DefaultInfo
		asked      bool
	}{
		{"RBAC alone decides", false, ben, false},
		{"another authorizer decides too", true, ben, true},
		{"a node", false, &user.DefaultInfo{Name: "system:node:n", Groups: []string{user.NodesGroup}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHub(readsPods(t))
			h.incomplete.Store(test.incomplete)
			h.start(t, visibility.Config{})
			// It is denied to everybody by RBAC, and allowed to this caller by somebody else.
			h.rules.Store(test.caller.Name, authorizer.DecisionAllow)
			if got := h.scope(t, test.caller).Allows(podInOne); got != test.asked {
				t.Errorf("got %v, want %v", got, test.asked)
			}
		})
	}
}

func TestDisagreementSwitchesToReviews(t *testing.T) {
	h := startHub(t, visibility.Config{AuthorizerTTL: time.Millisecond}, readPods)
	h.rules.Store("ben", authorizer.DecisionAllow)
	changed, stop := h.Subscribe(ann)
	defer stop()
	if h.scope(t, ben).Allows(podInOne) {
		t.Fatal("RBAC does not allow it")
	}
	told(t, "the hub decides otherwise than RBAC says", changed)
	eventually(t, "the hub's decisions count", func() bool { return h.scope(t, ben).Allows(podInOne) })
}

func TestErrorsAreNotAnswers(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews}, readPods+annEverywhere)
	h.failing.Store(true)
	if scope, err := h.Scope(t.Context(), ann); err == nil || scope != (visibility.Scope{}) {
		t.Errorf("got a Scope and error %v of a hub that does not answer", err)
	}
	h.failing.Store(false)
	if !h.scope(t, ann).Allows(podInOne) {
		t.Error("an error was remembered as an answer")
	}
}

func TestReviewsAreKept(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews, ReviewTTL: time.Hour}, readPods+annInOne)
	first := h.scope(t, ann)
	asked := h.questions.Load()
	if h.scope(t, ann) != first || h.questions.Load() != asked {
		t.Error("the hub was asked again at once")
	}
	more := append(*h.classes.Load(), hub("apps", "deployments", "one"))
	h.classes.Store(&more)
	h.version.Add(1)
	eventually(t, "what is new is asked for", func() bool {
		h.scope(t, ann)
		return h.questions.Load() > asked
	})
	// Of the new class, cluster-wide and in its namespace.
	if got := h.questions.Load() - asked; got != 2 {
		t.Errorf("the hub was asked %d times more, want 2", got)
	}
}

func TestReviewsFindNames(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews}, clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: [x], verbs: [list]}`))
	scope := h.scope(t, ann)
	if !scope.Allows(podInOne) || scope.Allows(named("y", podInOne.Class)) {
		t.Errorf("got %+v", scope.Decide(podInOne.Class))
	}
}

func TestManyCallersAtOnce(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC, CacheSize: 3}, readPods+annInOne)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for range 200 {
				for _, caller := range []*user.DefaultInfo{ann, ben, {Name: "other", UID: string(rune('a' + i))}} {
					scope, err := h.Scope(t.Context(), caller)
					if err != nil {
						t.Error(err)
						return
					}
					if got := scope.Allows(podInOne); got != (caller == ann) {
						t.Errorf("%s: got %v", caller.Name, got)
					}
				}
			}
		})
	}
	for range 20 {
		h.bind(t, "two", "ann")
		h.unbind(t, "two", "ann")
	}
	callers.Wait()
}

// TestSubscribersLookAgainWhereTheHubIsAsked is about permissions that no informer tells of.
func TestSubscribersLookAgainWhereTheHubIsAsked(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews, ReviewTTL: time.Millisecond}, readPods)
	if h.scope(t, ann).Allows(podInOne) {
		t.Fatal("it is allowed already")
	}
	changed, stop := h.Subscribe(ann)
	defer stop()
	h.rules.Store("ann", authorizer.DecisionAllow)
	eventually(t, "a subscriber finds what the hub allows now", func() bool {
		told(t, "it should look", changed)
		return h.scope(t, ann).Allows(podInOne)
	})
}

func TestIncompleteConfigIsRefused(t *testing.T) {
	complete := rbacConfig(fake.NewClientset())
	for name, change := range map[string]func(*visibility.Config){
		"unknown mode":                      func(c *visibility.Config) { c.Mode = "Guess" },
		"RBAC without informers":            func(c *visibility.Config) { c.RoleBindings = nil },
		"Reviews without an authorizer":     func(c *visibility.Config) { c.Mode = visibility.Reviews },
		"Auto without a rules review":       func(c *visibility.Config) { c.Mode = visibility.Auto },
		"works without what they delivered": func(c *visibility.Config) { c.Works = c.Roles },
	} {
		config := complete
		change(&config)
		if _, err := visibility.New(config); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}
