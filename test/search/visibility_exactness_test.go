package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// decisionsEnv is the environment variable for the number of compared decisions.
	decisionsEnv     = "SEARCH_DECISIONS"
	defaultDecisions = 5_000
	parallelAsking   = 32
)

// The compared decisions are about these users and resources. Namespace "nowhere" does not exist.
var (
	askedGroups     = []string{"", "apps", "example.com", "rbac.authorization.k8s.io"}
	askedResources  = []string{"pods", "secrets", "deployments", "nodes", "widgets", "pods/log", "clusterroles"}
	askedNamespaces = []string{"", "one", "two", "three", "nowhere"}
	askedNames      = []string{"x", "y", "z", "other"}
	askedIdentities = []authenticationuser.DefaultInfo{
		{Name: "ann"},
		{Name: "ben", Groups: []string{"system:authenticated", "team-a"}},
		{Name: "cho", Groups: []string{"team-a", "team-b"}, Extra: map[string][]string{"scopes": {"narrow"}}},
		{Name: "cho", Groups: []string{"team-b"}, Extra: map[string][]string{"scopes": {"wide", "narrow"}}},
		{Name: "dan", UID: "1", Groups: []string{"team-c", "system:authenticated"}},
		{Name: "team-a"},
		{Name: "system:serviceaccount:one:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:one", "system:authenticated"}},
		{Name: "system:serviceaccount:two:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:two"}},
		{Name: "system:serviceaccount:nowhere:robot"},
		{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		{Name: "root", Groups: []string{"system:masters"}},
	}
)

// TestVisibilityIsExact compares the decisions of a Compiler for random policies with the decisions of a real
// kube-apiserver.
func TestVisibilityIsExact(t *testing.T) {
	x := newExactness(t)
	left := framework.Environment(t, decisionsEnv, defaultDecisions)
	rng := rand.New(rand.NewPCG(1, 2))
	total, allowed, took := 0, 0, time.Duration(0)
	for round := 0; left > 0; round++ {
		x.replacePolicy(t, rng, round)
		questions := x.questions()
		rng.Shuffle(len(questions), func(i, j int) { questions[i], questions[j] = questions[j], questions[i] })
		questions = questions[:min(left, len(questions))]
		left -= len(questions)
		total += len(questions)
		started := time.Now()
		allowed += x.compare(t, questions)
		took += time.Since(started)
		if t.Failed() {
			return
		}
	}
	if allowed == 0 || allowed == total {
		t.Errorf("allowed decisions = %d of %d, want some allowed and some denied", allowed, total)
	}
	t.Logf("%d decisions, %d of them allowed, equal on the hub and in both modes; %.0f decisions a second", total, allowed, float64(total)/took.Seconds())
}

// exactness is a hub with a Compiler for each mode.
type exactness struct {
	hub       *kubernetes.Clientset
	compilers map[visibility.Mode]*visibility.Compiler
	classes   []visibility.Class
	// version changes with every policy, so that decisions are not cached.
	version atomic.Uint64
}

type question struct {
	identity *authenticationuser.DefaultInfo
	verb     string
	object   visibility.Object
}

func newExactness(t *testing.T) *exactness {
	t.Helper()
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub"})
	config := cluster.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	x := &exactness{hub: framework.Must(kubernetes.NewForConfig(rest.CopyConfig(config)))(t), compilers: map[visibility.Mode]*visibility.Compiler{}}
	for _, namespace := range askedNamespaces {
		if namespace != "" && namespace != "nowhere" {
			framework.Must(x.hub.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))(t)
		}
		for _, group := range askedGroups {
			for _, resource := range askedResources {
				x.classes = append(x.classes, visibility.Class{Hub: true, Group: group, Resource: resource, Namespace: namespace})
			}
		}
	}
	factory := informers.NewSharedInformerFactory(x.hub, 0)
	rbac := factory.Rbac().V1()
	for _, mode := range []visibility.Mode{visibility.RBAC, visibility.Reviews} {
		compiler := framework.Must(visibility.New(visibility.Config{
			Mode:                mode,
			Roles:               rbac.Roles().Informer(),
			ClusterRoles:        rbac.ClusterRoles().Informer(),
			RoleBindings:        rbac.RoleBindings().Informer(),
			ClusterRoleBindings: rbac.ClusterRoleBindings().Informer(),
			Authorizer:          authorizer.AuthorizerFunc(x.authorize),
			HubClasses: func(context.Context) ([]visibility.Class, uint64, error) {
				return x.classes, x.version.Load(), nil
			},
			Clusters: func() []string { return askedNamespaces[1:] },
			// With this TTL, only events of informers invalidate cached reviews.
			ReviewTTL:     time.Hour,
			ReviewTimeout: await.Patience,
		}))(t)
		x.compilers[mode] = compiler
		background(t, compiler.Run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	framework.Eventually(t, "all Compilers have synced", func(context.Context) error {
		for mode, compiler := range x.compilers {
			if !compiler.HasSynced() {
				return fmt.Errorf("mode %s has not synced", mode)
			}
		}
		return nil
	})
	return x
}

// background runs a function until the end of the test.
func background(t *testing.T, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// authorize sends a SubjectAccessReview to the hub without a cache.
func (x *exactness) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   a.GetUser().GetName(),
		UID:    a.GetUser().GetUID(),
		Groups: a.GetUser().GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(), Namespace: a.GetNamespace(), Name: a.GetName(),
		},
	}}
	if extra := a.GetUser().GetExtra(); len(extra) > 0 {
		review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		for key, values := range extra {
			review.Spec.Extra[key] = values
		}
	}
	review, err := x.hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authorizer.DecisionNoOpinion, "", err
	case review.Status.Allowed:
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// questions returns all combinations of users and resources.
func (x *exactness) questions() []question {
	var all []question
	for i := range askedIdentities {
		identity := &askedIdentities[i]
		for _, class := range x.classes {
			for _, name := range askedNames {
				all = append(all, question{identity, "list", visibility.Object{Class: class, Name: name}})
			}
		}
		for _, cluster := range askedNamespaces[1:] {
			all = append(all, question{identity, "create", visibility.Object{Class: visibility.Class{
				Group: "view.open-cluster-management.io", Resource: "managedclusterviews", Namespace: cluster,
			}}})
		}
	}
	return all
}

// compare checks that the Compilers decide like the hub, and returns the number of allowed decisions.
func (x *exactness) compare(t *testing.T, questions []question) (allowed int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallelAsking)
	var count atomic.Int64
	for _, q := range questions {
		group.Go(func() error {
			want, err := x.hubAllows(ctx, q)
			if err != nil {
				return err
			}
			if want {
				count.Add(1)
			}
			for mode, compiler := range x.compilers {
				got, err := found(ctx, compiler, q)
				if err != nil {
					return fmt.Errorf("mode %s: %w", mode, err)
				}
				if got != want {
					t.Errorf("mode %s: user %q, groups %q, %s %+v: allowed = %v, want %v as on the hub", mode, q.identity.Name, q.identity.Groups, q.verb, q.object, got, want)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return int(count.Load())
}

func (x *exactness) hubAllows(ctx context.Context, q question) (bool, error) {
	decision, _, err := x.authorize(ctx, authorizer.AttributesRecord{
		User: q.identity, Verb: q.verb, APIGroup: q.object.Group, APIVersion: "*", Resource: q.object.Resource,
		Namespace: q.object.Namespace, Name: q.object.Name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

func found(ctx context.Context, compiler *visibility.Compiler, q question) (bool, error) {
	scope, err := compiler.Scope(ctx, q.identity)
	if err != nil {
		return false, err
	}
	if q.verb == "create" {
		return scope.Cluster(q.object.Namespace), nil
	}
	return scope.Allows(q.object), nil
}

// replacePolicy replaces the policy of the previous round and waits until it takes effect everywhere.
func (x *exactness) replacePolicy(t *testing.T, rng *rand.Rand, round int) {
	t.Helper()
	ctx, rbac := t.Context(), x.hub.RbacV1()
	everything := metav1.ListOptions{LabelSelector: policyLabel}
	for _, namespace := range []string{"one", "two", "three"} {
		for _, err := range []error{
			rbac.Roles(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
			rbac.RoleBindings(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, err := range []error{
		rbac.ClusterRoles().DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		rbac.ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := randomPolicy(rng, round)
	for _, role := range p.clusterRoles {
		framework.Must(rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}))(t)
	}
	for _, role := range p.roles {
		framework.Must(rbac.Roles(role.Namespace).Create(ctx, role, metav1.CreateOptions{}))(t)
	}
	for _, binding := range p.clusterBindings {
		framework.Must(rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}))(t)
	}
	for _, binding := range p.bindings {
		framework.Must(rbac.RoleBindings(binding.Namespace).Create(ctx, binding, metav1.CreateOptions{}))(t)
	}
	framework.Eventually(t, "the hub has aggregated the rules of ClusterRole "+p.aggregate, func(ctx context.Context) error {
		aggregate, err := rbac.ClusterRoles().Get(ctx, p.aggregate, metav1.GetOptions{})
		if err == nil && len(aggregate.Rules) < p.aggregated {
			err = fmt.Errorf("aggregated rules = %d, want %d", len(aggregate.Rules), p.aggregated)
		}
		return err
	})
	x.awaitMarker(t, round)
}

// awaitMarker writes the last object of each kind, and waits until the authorizer of the hub and the Compilers use it.
func (x *exactness) awaitMarker(t *testing.T, round int) {
	t.Helper()
	ctx, rbac := t.Context(), x.hub.RbacV1()
	p := markers(round)
	framework.Must(rbac.ClusterRoles().Create(ctx, p.clusterRoles[0], metav1.CreateOptions{}))(t)
	framework.Must(rbac.Roles("one").Create(ctx, p.roles[0], metav1.CreateOptions{}))(t)
	framework.Must(rbac.ClusterRoleBindings().Create(ctx, p.clusterBindings[0], metav1.CreateOptions{}))(t)
	framework.Must(rbac.RoleBindings("one").Create(ctx, p.bindings[0], metav1.CreateOptions{}))(t)
	x.version.Add(1)
	marker := &authenticationuser.DefaultInfo{Name: markerName(round)}
	questions := []question{
		{marker, "list", visibility.Object{Class: visibility.Class{Hub: true, Group: "example.com", Resource: "widgets"}, Name: "x"}},
		{marker, "list", visibility.Object{Class: visibility.Class{Hub: true, Resource: "pods", Namespace: "one"}, Name: "x"}},
	}
	// The hub is checked first, because a Compiler in mode Reviews caches the decision of the hub.
	known := func(who string, allows func(context.Context, question) (bool, error)) {
		framework.Eventually(t, who+" uses the new policy", func(ctx context.Context) error {
			for _, q := range questions {
				if known, err := allows(ctx, q); err != nil || !known {
					return fmt.Errorf("%+v has not taken effect: %w", q.object, err)
				}
			}
			return nil
		})
	}
	known("the hub", x.hubAllows)
	for mode, compiler := range x.compilers {
		known("mode "+string(mode), func(ctx context.Context, q question) (bool, error) { return found(ctx, compiler, q) })
	}
}

func markerName(round int) string { return "marker-" + strconv.Itoa(round) }

// oneOf returns a random element.
func oneOf[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// someOf returns a random number of random elements, possibly with duplicates.
func someOf(rng *rand.Rand, list []string, least, most int) []string {
	var picked []string
	for range least + rng.IntN(most-least+1) {
		picked = append(picked, oneOf(rng, list))
	}
	return slices.Clip(picked)
}
