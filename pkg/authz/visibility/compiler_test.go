package visibility_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/test/await"
)

var (
	ann = &user.DefaultInfo{Name: "ann", Groups: []string{user.AllAuthenticated}}
	ben = &user.DefaultInfo{Name: "ben", Groups: []string{user.AllAuthenticated}}

	podInOne = named("x", hub("", "pods", "one"))
)

func TestGrantsAndRevocations(t *testing.T) {
	for _, mode := range []visibility.Mode{visibility.RBAC, visibility.Reviews} {
		t.Run(string(mode), func(t *testing.T) {
			h := startHub(t, visibility.Config{Mode: mode, ReviewTTL: time.Hour}, readPods)
			allows := func() bool { return h.scope(t, ann).Allows(podInOne) }
			denies := func() bool { return !allows() }
			await.True(t, "ann may not list the pod", denies)
			changed, stop := h.Subscribe(ann)
			defer stop()
			h.bind(t, "one", "ann")
			notified(t, "a binding of ann was created", changed)
			await.True(t, "the new binding allows ann", allows)
			h.grant(t, "get")
			notified(t, "the role of ann changed", changed)
			await.True(t, "the role without list denies ann", denies)
			h.grant(t, "list")
			await.True(t, "the role with list allows ann", allows)
			h.unbind(t, "one", "ann")
			await.True(t, "ann is denied after the deletion of the binding", denies)
		})
	}
}

// TestScopesOfDifferentRules checks that callers with different rules have different Scopes: engines share the results of
// callers with one Scope.
func TestScopesOfDifferentRules(t *testing.T) {
	rules := []string{
		`{apiGroups: [""], resources: [pods], verbs: [list]}`,
		`{apiGroups: [""], resources: [pods], resourceNames: [x], verbs: [list]}`,
		`{apiGroups: [""], resources: [pods], resourceNames: [z], verbs: [list]}`,
		`{apiGroups: [""], resources: [pods], resourceNames: [x, z], verbs: [list]}`,
		`{apiGroups: [""], resources: [nodes], verbs: [list]}`,
		`{apiGroups: [apps], resources: [pods], verbs: [list]}`,
		`{apiGroups: ["", apps], resources: [pods], verbs: [list]}`,
		`{apiGroups: ["*"], resources: [pods], verbs: [list]}`,
		`{apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}`,
	}
	var policy strings.Builder
	for i, rule := range rules {
		fmt.Fprintf(&policy, `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user%[1]d, namespace: one}
rules: [%[2]s]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user%[1]d, namespace: one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user%[1]d}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: user%[1]d}]
`, i, rule)
	}
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, policy.String())
	seen := map[visibility.Scope]string{}
	for i, rule := range rules {
		scope := h.scope(t, &user.DefaultInfo{Name: fmt.Sprintf("user%d", i)})
		if other, known := seen[scope]; known {
			t.Errorf("Scope of %s = that of %s, want another", rule, other)
		}
		seen[scope] = rule
	}
}

func TestOnlyConcernedSubscribersAreNotified(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods+annInOne)
	before := h.scope(t, ann)
	annChanged, stopAnn := h.Subscribe(ann)
	defer stopAnn()
	benChanged, stopBen := h.Subscribe(ben)
	defer stopBen()

	// Events of an informer arrive in order. After the last event, all events have arrived.
	h.bind(t, "two", "somebody")
	h.bind(t, "two", "ben")
	notified(t, "a binding of ben was created", benChanged)
	select {
	case <-annChanged:
		t.Error("notification of ann after bindings of others were created, want none")
	default:
	}
	// A change of rules without the verb list does not change the Scope.
	h.grant(t, "list", "get")
	h.grant(t, "list", "get", "delete")
	h.grant(t, "list", "create")
	h.bind(t, "two", "ann")
	notified(t, "a binding of ann was created", annChanged)
	if got := h.scope(t, ann); got == before || !got.Allows(named("x", hub("", "pods", "two"))) {
		t.Error("Allows() after the notification = false, want true")
	}
	h.unbind(t, "two", "ann")
	notified(t, "the binding of ann was deleted", annChanged)
	if got := h.scope(t, ann); got != before {
		t.Error("Scope() with the same permissions = another Scope, want the same Scope")
	}
}

func TestStoppedSubscription(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods)
	stopped, stop := h.Subscribe(ann)
	stop()
	changed, stop := h.Subscribe(ann)
	defer stop()
	h.bind(t, "one", "ann")
	notified(t, "a binding of ann was created", changed)
	select {
	case <-stopped:
		t.Error("notification of a stopped subscription, want none")
	default:
	}
}

// Identities without a UID must not share a cached Scope, as they do in the upstream service.
func TestIdentitiesWithoutUID(t *testing.T) {
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
			t.Errorf("Allows() for %+v = %v, want %v", test.caller, got, test.allowed)
		}
	}
}

func TestIdentitiesWithDifferentExtra(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews, ReviewTTL: time.Hour}, readPods)
	narrow := &user.DefaultInfo{Name: "cho", UID: "1", Extra: map[string][]string{"scopes": {"narrow"}}}
	wide := &user.DefaultInfo{Name: "cho", UID: "1", Extra: map[string][]string{"scopes": {"wide"}}}
	h.scope(t, narrow)
	h.rules.Store("cho", authorizer.DecisionAllow)
	if !h.scope(t, wide).Allows(podInOne) || h.scope(t, narrow).Allows(podInOne) {
		t.Error("Allows() = false for extra wide or true for extra narrow, want true for wide and false for narrow")
	}
}

func TestModeRBACSendsNoReviews(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.RBAC}, readPods+annInOne)
	if !h.scope(t, ann).Allows(podInOne) {
		t.Error("Allows(pod) for ann = false, want true")
	}
	if got := h.questions.Load(); got != 0 {
		t.Errorf("access reviews of the hub = %d, want 0", got)
	}
}

func TestScopeBeforeSyncAndAfterRun(t *testing.T) {
	config := rbacConfig(fake.NewClientset())
	compiler, err := visibility.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compiler.Scope(t.Context(), ann); !errors.Is(err, visibility.ErrNotSynced) {
		t.Errorf("Scope() before sync = %v, want %v", err, visibility.ErrNotSynced)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	compiler.Run(ended)
	if _, err := compiler.Scope(t.Context(), ann); !errors.Is(err, visibility.ErrNotSynced) {
		t.Errorf("Scope() after Run = %v, want %v", err, visibility.ErrNotSynced)
	}
}

func TestModeAutoWithOtherAuthorizers(t *testing.T) {
	for _, test := range []struct {
		name       string
		incomplete bool
		caller     *user.DefaultInfo
		asked      bool
	}{
		{"only RBAC decides", false, ben, false},
		{"another authorizer decides too", true, ben, true},
		{"a node", false, &user.DefaultInfo{Name: "system:node:n", Groups: []string{user.NodesGroup}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHub(readsPods(t))
			h.incomplete.Store(test.incomplete)
			h.start(t, visibility.Config{})
			// RBAC denies it, and another authorizer allows it to this caller.
			h.rules.Store(test.caller.Name, authorizer.DecisionAllow)
			if got := h.scope(t, test.caller).Allows(podInOne); got != test.asked {
				t.Errorf("Allows() = %v, want %v", got, test.asked)
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
		t.Fatal("Allows() by RBAC = true, want false")
	}
	notified(t, "a decision of the hub differs from its RBAC", changed)
	await.True(t, "ben is allowed by the reviews of the hub", func() bool { return h.scope(t, ben).Allows(podInOne) })
}

func TestErrorsAreNotCached(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews}, readPods+annEverywhere)
	h.failing.Store(true)
	if scope, err := h.Scope(t.Context(), ann); err == nil || scope != (visibility.Scope{}) {
		t.Errorf("Scope() of a hub that does not respond = %+v, %v, want no Scope and an error", scope, err)
	}
	h.failing.Store(false)
	if !h.scope(t, ann).Allows(podInOne) {
		t.Error("Allows() after an error = false, want true")
	}
}

func TestReviewsAreCached(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews, ReviewTTL: time.Hour}, readPods+annInOne)
	first := h.scope(t, ann)
	asked := h.questions.Load()
	if h.scope(t, ann) != first || h.questions.Load() != asked {
		t.Errorf("access reviews of the hub after a repeated Scope() = %d, want %d and the same Scope", h.questions.Load(), asked)
	}
	more := append(*h.classes.Load(), hub("apps", "deployments", "one"))
	h.classes.Store(&more)
	h.version.Add(1)
	await.True(t, "the hub has reviewed the new class", func() bool {
		h.scope(t, ann)
		return h.questions.Load() > asked
	})
	// The new class is checked cluster-wide and in its namespace.
	if got := h.questions.Load() - asked; got != 2 {
		t.Errorf("access reviews of the new class = %d, want 2", got)
	}
}

func TestReviewsFindNames(t *testing.T) {
	h := startHub(t, visibility.Config{Mode: visibility.Reviews}, clusterWide(`{apiGroups: [""], resources: [pods], resourceNames: [x], verbs: [list]}`))
	scope := h.scope(t, ann)
	if !scope.Allows(podInOne) || scope.Allows(named("y", podInOne.Class)) {
		t.Errorf("Decide() = %+v, want the names that RBAC grants", scope.Decide(podInOne.Class))
	}
}

func TestParallelCallers(t *testing.T) {
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
						t.Errorf("Allows() for %s = %v, want %v", caller.Name, got, !got)
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

// The hub sends no event when a decision of another authorizer changes.
func TestSubscribersOfReviewedScopesAreNotified(t *testing.T) {
	for mode, caller := range map[visibility.Mode]*user.DefaultInfo{
		visibility.Reviews: ann, visibility.Auto: {Name: "system:node:n", Groups: []string{user.NodesGroup}},
	} {
		t.Run(string(mode), func(t *testing.T) {
			h := startHub(t, visibility.Config{Mode: mode, ReviewTTL: time.Millisecond}, readPods)
			if h.scope(t, caller).Allows(podInOne) {
				t.Fatal("Allows() = true before the change, want false")
			}
			changed, stop := h.Subscribe(caller)
			defer stop()
			h.rules.Store(caller.Name, authorizer.DecisionAllow)
			await.True(t, "the caller is allowed by the hub after a notification", func() bool {
				notified(t, "the Scope of "+caller.Name+" comes from reviews", changed)
				return h.scope(t, caller).Allows(podInOne)
			})
		})
	}
}
