package accessreview_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestOnAManagedCluster runs the tests that share one real cluster.
func TestOnAManagedCluster(t *testing.T) {
	m := newManagedCluster(t)
	for _, test := range grantTests {
		t.Run(test.name, func(t *testing.T) { testGrant(t, m, test) })
	}
	t.Run("a RoleBinding is replaced by one to another role", func(t *testing.T) { testReplacedBinding(t, m) })
	t.Run("rules", func(t *testing.T) { testRules(t, m) })
	t.Run("an agent that is not allowed to watch", func(t *testing.T) { testForbidden(t, m) })
	t.Run("an agent without executors watches nothing", func(t *testing.T) { testLazy(t, m) })
	t.Run("the API server is restarted", func(t *testing.T) { testRestart(t, m) })
}

// managedCluster is a real cluster with a Reviewer that has the permissions of an agent.
type managedCluster struct {
	control *localhub.Cluster
	admin   kubernetes.Interface
	agent   *rest.Config
	*counting
	reviewer *accessreview.Reviewer
	notified *notified
	spaces   int
}

func newManagedCluster(t *testing.T) *managedCluster {
	control := framework.OwnCluster(t, localhub.ClusterOptions{Name: "cluster"})
	m := &managedCluster{control: control, admin: kubernetes.NewForConfigOrDie(control.AdminConfig()), notified: &notified{}}
	m.agent = m.agentConfig(t, "agent", rule("create", "authorization.k8s.io", "subjectaccessreviews"), rbacv1.PolicyRule{
		Verbs: []string{"list", "watch"}, APIGroups: []string{rbacv1.GroupName},
		Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
	})
	client := kubernetes.NewForConfigOrDie(m.agent)
	m.counting = &counting{AuthorizationV1Interface: client.AuthorizationV1()}
	m.reviewer = accessreview.NewReviewer(accessreview.Config{Client: m.counting, RBAC: client.RbacV1()})
	run(t, m.reviewer, m.notified.changed)
	return m
}

// run runs a Reviewer until the test ends.
func run(t *testing.T, r *accessreview.Reviewer, changed func(types.NamespacedName)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, changed)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(await.Patience):
			t.Error("Run did not return after its context ended")
		}
	})
}

// agentConfig returns the configuration of a ServiceAccount with cluster-wide rules.
func (m *managedCluster) agentConfig(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config, err := m.control.ServiceAccountConfig(t.Context(), "open-cluster-management-agent", name)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	m.clusterRole(t, name, nil, rules...)
	m.clusterBinding(t, name, name, accountSubject(types.NamespacedName{Namespace: "open-cluster-management-agent", Name: name}))
	client := kubernetes.NewForConfigOrDie(config).AuthorizationV1()
	await.Eventually(t, "the API server has the permission of "+name, func() error {
		review, err := client.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, granted := range review.Status.ResourceRules {
			if slices.Contains(granted.Resources, "subjectaccessreviews") {
				return nil
			}
		}
		return errors.New("not in force")
	})
	return config
}

func (m *managedCluster) clusterRole(t *testing.T, name string, labels map[string]string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Rules: rules}
	if _, err := m.admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (m *managedCluster) role(t *testing.T, namespace, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := m.admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (m *managedCluster) clusterBinding(t *testing.T, name, role string, subjects ...rbacv1.Subject) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	if _, err := m.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (m *managedCluster) binding(t *testing.T, namespace, name, kind, role string, subjects ...rbacv1.Subject) {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	if _, err := m.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// do fails the test if err is not nil.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counting counts the SubjectAccessReviews of a client.
type counting struct {
	authorizationv1client.AuthorizationV1Interface

	mu    sync.Mutex
	asked map[string]int
}

func (c *counting) SubjectAccessReviews() authorizationv1client.SubjectAccessReviewInterface {
	return countingReviews{c.AuthorizationV1Interface.SubjectAccessReviews(), c}
}

type countingReviews struct {
	authorizationv1client.SubjectAccessReviewInterface
	counting *counting
}

func (c countingReviews) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, options metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a := review.Spec.ResourceAttributes
	c.counting.mu.Lock()
	if c.counting.asked == nil {
		c.counting.asked = map[string]int{}
	}
	c.counting.asked[review.Spec.User+" "+a.Verb+" "+a.Namespace+"/"+a.Name]++
	c.counting.mu.Unlock()
	return c.SubjectAccessReviewInterface.Create(ctx, review, options)
}

// reviews returns the number of SubjectAccessReviews of a request of an account.
func (c *counting) reviews(account types.NamespacedName, request accessreview.Request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[accessreview.UserName(account)+" "+request.Verb+" "+request.Namespace+"/"+request.Name]
}

// space contains two namespaces, an account in each, and requests.
type space struct {
	t *testing.T
	*managedCluster
	namespace, far string
	alice, bob     types.NamespacedName
	// get and getOne are requests in namespace, and getFar is a request in far. No account is allowed
	// to delete.
	get, getOne, getFar, delete accessreview.Request
}

func (m *managedCluster) space(t *testing.T) *space {
	t.Helper()
	m.spaces++
	s := &space{t: t, managedCluster: m, namespace: fmt.Sprintf("space-%d", m.spaces), far: fmt.Sprintf("far-%d", m.spaces)}
	for _, name := range []string{s.namespace, s.far} {
		_, err := m.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		do(t, err)
	}
	s.alice = types.NamespacedName{Namespace: s.namespace, Name: "alice"}
	s.bob = types.NamespacedName{Namespace: s.far, Name: "bob"}
	s.get = accessreview.Request{Verb: "get", Version: "v1", Resource: "configmaps", Namespace: s.namespace, Name: "two"}
	s.getOne, s.getFar, s.delete = s.get, s.get, s.get
	s.getOne.Name, s.getFar.Namespace, s.delete.Verb = "one", s.far, "delete"
	return s
}

// everything returns all requests, which are reviewed for each account.
func (s *space) everything() []accessreview.Request {
	return []accessreview.Request{s.get, s.getOne, s.getFar, s.delete}
}

// settle waits until the Reviewer has cached the decisions for all requests, and allows exactly the
// wanted ones.
func (s *space) settle(want map[types.NamespacedName][]accessreview.Request) {
	s.t.Helper()
	for _, account := range []types.NamespacedName{s.alice, s.bob} {
		await.Eventually(s.t, "the decisions for "+account.String()+" are as wanted and cached", func() error {
			before := 0
			for _, request := range s.everything() {
				before += s.reviews(account, request)
			}
			decisions, err := s.reviewer.Review(s.t.Context(), account, s.everything(), 0)
			if err != nil {
				return err
			}
			for i, request := range s.everything() {
				allowed := false
				for _, w := range want[account] {
					allowed = allowed || w == request
				}
				if decisions[i].Allowed != allowed {
					return fmt.Errorf("Allowed of %+v = %t, want %t", request, decisions[i].Allowed, allowed)
				}
			}
			for _, request := range s.everything() {
				before -= s.reviews(account, request)
			}
			if before != 0 {
				return errors.New("Review() sent requests to the cluster")
			}
			return nil
		})
	}
}

// happens makes a change and checks that it invalidates exactly the concerned requests. Their accounts
// are notified, and no other request is sent again.
func (s *space) happens(what func(), concerned map[types.NamespacedName][]accessreview.Request, want map[types.NamespacedName][]accessreview.Request) {
	s.t.Helper()
	notified, asked := map[types.NamespacedName]int{}, map[types.NamespacedName][]int{}
	for _, account := range []types.NamespacedName{s.alice, s.bob} {
		notified[account] = s.notified.count(account)
		for _, request := range s.everything() {
			asked[account] = append(asked[account], s.reviews(account, request))
		}
	}
	what()
	for account := range concerned {
		await.Eventually(s.t, account.String()+" is notified", func() error {
			if s.notified.count(account) == notified[account] {
				return errors.New("no notification")
			}
			return nil
		})
	}
	s.settle(want)
	for _, account := range []types.NamespacedName{s.alice, s.bob} {
		if len(concerned[account]) == 0 && s.notified.count(account) != notified[account] {
			s.t.Errorf("notifications of %s = %d, want none for an unrelated change", account, s.notified.count(account)-notified[account])
		}
		for i, request := range s.everything() {
			again := false
			for _, c := range concerned[account] {
				again = again || c == request
			}
			if got := s.reviews(account, request) > asked[account][i]; got != again {
				s.t.Errorf("%s: %+v was sent again: %t, want %t", account, request, got, !got)
			}
		}
	}
}

// testReplacedBinding deletes and creates a binding, because a roleRef cannot be updated.
func testReplacedBinding(t *testing.T, m *managedCluster) {
	s := m.space(t)
	s.role(t, s.namespace, "one", rule("get", "", "configmaps", "one"))
	s.role(t, s.namespace, "all", rule("get", "", "configmaps"))
	s.binding(t, s.namespace, "binding", "Role", "all", accountSubject(s.alice))
	s.settle(map[types.NamespacedName][]accessreview.Request{s.alice: {s.get, s.getOne}})
	concerned := map[types.NamespacedName][]accessreview.Request{s.alice: {s.get, s.getOne}}
	s.happens(func() {
		do(t, m.admin.RbacV1().RoleBindings(s.namespace).Delete(t.Context(), "binding", metav1.DeleteOptions{}))
		s.binding(t, s.namespace, "binding", "Role", "one", accountSubject(s.alice))
	}, concerned, map[types.NamespacedName][]accessreview.Request{s.alice: {s.getOne}})
}

func testRules(t *testing.T, m *managedCluster) {
	s := m.space(t)
	near := func() ([]rbacv1.PolicyRule, error) {
		rules, err := m.reviewer.Rules(t.Context(), s.alice, s.namespace)
		// Rules of all users are ignored.
		var own []rbacv1.PolicyRule
		for _, r := range rules {
			if len(r.Resources) == 1 && r.Resources[0] == "configmaps" {
				own = append(own, r)
			}
		}
		return own, err
	}
	if rules, err := near(); err != nil || len(rules) != 0 {
		t.Fatalf("Rules() = %v, %v, want none", rules, err)
	}
	notified := s.notified.count(s.alice)
	readerRole(s)
	s.binding(t, s.namespace, "binding", "ClusterRole", s.namespace, groupSubject("system:serviceaccounts:"+s.namespace))
	await.Eventually(t, "the account has the rule, and is notified", func() error {
		rules, err := near()
		if err != nil || len(rules) != 1 {
			return fmt.Errorf("Rules() = %v, %v, want one rule", rules, err)
		}
		if s.notified.count(s.alice) == notified {
			return errors.New("no notification")
		}
		return nil
	})
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "role"}
	if rules, known, err := m.reviewer.RoleRules(t.Context(), s.bob, ref, s.namespace); err != nil || known || len(rules) != 0 {
		t.Errorf("RoleRules() of a missing role = %v, %t, %v, want none, false, nil", rules, known, err)
	}
	s.role(t, s.namespace, "role", rule("get", "", "configmaps"))
	await.Eventually(t, "RoleRules returns the rules of the new role, and the account is notified", func() error {
		rules, known, err := m.reviewer.RoleRules(t.Context(), s.bob, ref, s.namespace)
		if err != nil || !known || len(rules) != 1 {
			return fmt.Errorf("RoleRules() = %v, %t, %v, want one rule, true, nil", rules, known, err)
		}
		if s.notified.count(s.bob) == 0 {
			return errors.New("no notification")
		}
		return nil
	})
}

func testForbidden(t *testing.T, m *managedCluster) {
	s := m.space(t)
	config := m.agentConfig(t, "blind", rule("create", "authorization.k8s.io", "subjectaccessreviews"))
	client := kubernetes.NewForConfigOrDie(config)
	asked := &counting{AuthorizationV1Interface: client.AuthorizationV1()}
	clock := clocktesting.NewFakeClock(time.Now())
	reviewer := accessreview.NewReviewer(accessreview.Config{Client: asked, RBAC: client.RbacV1(), Clock: clock})
	run(t, reviewer, func(types.NamespacedName) {})

	review := func(want int) {
		t.Helper()
		if _, err := reviewer.Review(t.Context(), s.alice, []accessreview.Request{s.get}, 0); err != nil {
			t.Fatal(err)
		}
		if n := asked.reviews(s.alice, s.get); n != want {
			t.Errorf("Review() sent %d requests to the cluster, want %d", n, want)
		}
	}
	_, err := reviewer.Rules(t.Context(), s.alice, s.namespace)
	if err == nil || !strings.Contains(err.Error(), "cannot watch RBAC") || !strings.Contains(err.Error(), "verbs: [list, watch]") {
		t.Errorf("Rules() = %v, want an error with the missing rule", err)
	}
	review(1)
	review(1)
	clock.Step(time.Minute)
	review(2)

	m.clusterRole(t, "seeing", nil, rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}})
	m.clusterBinding(t, "seeing", "seeing", accountSubject(types.NamespacedName{Namespace: "open-cluster-management-agent", Name: "blind"}))
	await.Eventually(t, "Rules succeeds with the new permission of the agent", func() error {
		_, err := reviewer.Rules(t.Context(), s.alice, s.namespace)
		return err
	})
}

func testLazy(t *testing.T, m *managedCluster) {
	client := kubernetes.NewForConfigOrDie(m.agent)
	reviewer := accessreview.NewReviewer(accessreview.Config{Client: client.AuthorizationV1(), RBAC: client.RbacV1()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reviewer.Run(ctx, func(types.NamespacedName) {})
	}()
	await.Eventually(t, "the second Reviewer runs", func() error {
		if n := goroutines("accessreview.(*Reviewer).Run("); n != 2 {
			return fmt.Errorf("Reviewers running = %d, want 2", n)
		}
		return nil
	})
	const watch = "accessreview.(*kind).run("
	before := goroutines(watch)
	s := m.space(t)
	if _, err := reviewer.Review(t.Context(), s.alice, []accessreview.Request{s.get}, 0); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the Reviewer watches RBAC", func() error {
		if n := goroutines(watch) - before; n != 4 {
			return fmt.Errorf("watched kinds = %d, want 4", n)
		}
		return nil
	})
	cancel()
	<-done
	if n := goroutines(watch) - before; n != 0 {
		t.Errorf("watches after Run returned = %d, want 0", n)
	}
}

// goroutines counts the goroutines that run a function.
func goroutines(function string) int {
	buffer := make([]byte, 1<<22)
	return strings.Count(string(buffer[:runtime.Stack(buffer, true)]), function)
}

// testRestart checks that the Reviewer receives changes after a restart of the API server has ended
// its watches.
func testRestart(t *testing.T, m *managedCluster) {
	s := m.space(t)
	readerRole(s)
	s.clusterBinding(t, s.namespace, s.namespace, accountSubject(s.alice))
	s.settle(map[types.NamespacedName][]accessreview.Request{s.alice: gets(s)})
	do(t, m.control.APIServer.Kill())
	<-m.control.APIServer.Exited()
	do(t, m.control.APIServer.Start(t.Context()))
	deleteClusterBinding(s)
	s.settle(nil)
}
