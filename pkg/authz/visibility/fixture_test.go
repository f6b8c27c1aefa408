package visibility_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// hubUnderTest is a Compiler with informers of a fake hub.
type hubUnderTest struct {
	*visibility.Compiler
	client *fake.Clientset
	// questions counts the access reviews of the hub.
	questions atomic.Int64
	// rules override the decisions of RBAC.
	rules sync.Map // user name → authorizer.Decision
	// incomplete is the result of rules reviews.
	incomplete atomic.Bool
	// watches counts the watches that have begun.
	watches atomic.Int64
	// failing makes all requests to the hub fail.
	failing atomic.Bool
	classes atomic.Pointer[[]visibility.Class]
	version atomic.Uint64
}

func startHub(t testing.TB, config visibility.Config, policy string) *hubUnderTest {
	t.Helper()
	h := newHub(visibilitytest.Parse(t, policy))
	h.start(t, config)
	return h
}

func readsPods(t testing.TB) []runtime.Object { return visibilitytest.Parse(t, readPods) }

func newHub(objects []runtime.Object) *hubUnderTest {
	h := &hubUnderTest{client: fake.NewClientset(objects...)}
	// A fake client loses writes between a list and its watch.
	h.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watcher, err := h.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		h.watches.Add(1)
		return true, watcher, err
	})
	h.classes.Store(&[]visibility.Class{hub("", "pods", "one"), hub("", "pods", "two"), hub("", "nodes", "")})
	return h
}

// start runs a Compiler on the hub until the test ends.
func (h *hubUnderTest) start(t testing.TB, config visibility.Config) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(h.client, 0)
	follow(&config, factory)
	config.Authorizer = authorizer.AuthorizerFunc(h.authorize)
	config.ReviewAuthorizers = func(context.Context) (bool, error) { return h.incomplete.Load(), h.err() }
	config.HubClasses = func(context.Context) ([]visibility.Class, uint64, error) {
		return *h.classes.Load(), h.version.Load(), nil
	}
	config.Clusters = func() []string { return []string{"one", "two"} }
	compiler, err := visibility.New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.Compiler = compiler
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		compiler.Run(ctx)
	}()
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); <-done; factory.Shutdown() })
	await.True(t, "the Compiler has synced", func() bool { return compiler.HasSynced() && h.watches.Load() >= 4 })
}

// follow configures the informers of a factory.
func follow(config *visibility.Config, factory informers.SharedInformerFactory) {
	rbac := factory.Rbac().V1()
	config.Roles, config.ClusterRoles = rbac.Roles().Informer(), rbac.ClusterRoles().Informer()
	config.RoleBindings, config.ClusterRoleBindings = rbac.RoleBindings().Informer(), rbac.ClusterRoleBindings().Informer()
}

// rbacConfig returns a configuration in mode RBAC with informers that are not started.
func rbacConfig(client *fake.Clientset) visibility.Config {
	config := visibility.Config{Mode: visibility.RBAC}
	follow(&config, informers.NewSharedInformerFactory(client, 0))
	return config
}

func (h *hubUnderTest) err() error {
	if h.failing.Load() {
		return errors.New("the hub does not respond")
	}
	return nil
}

// authorize decides by the RBAC of the hub, unless a rule overrides it.
func (h *hubUnderTest) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h.questions.Add(1)
	if err := h.err(); err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	if decision, ruled := h.rules.Load(a.GetUser().GetName()); ruled {
		return decision.(authorizer.Decision), "", nil
	}
	scope, err := h.static(ctx, a.GetUser())
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	allowed := scope.Allows(named(a.GetName(), hub(a.GetAPIGroup(), a.GetResource(), a.GetNamespace())))
	if a.GetVerb() == "create" {
		allowed = scope.AllClusters() || a.GetNamespace() != "" && scope.Cluster(a.GetNamespace())
	}
	if allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// static returns the Scope according to the stored RBAC.
func (h *hubUnderTest) static(ctx context.Context, identity user.Info) (visibility.Scope, error) {
	var objects []runtime.Object
	rbac := h.client.RbacV1()
	roles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return visibility.Scope{}, err
	}
	for i := range roles.Items {
		objects = append(objects, &roles.Items[i])
	}
	bindings, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return visibility.Scope{}, err
	}
	for i := range bindings.Items {
		objects = append(objects, &bindings.Items[i])
	}
	wide, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return visibility.Scope{}, err
	}
	for i := range wide.Items {
		objects = append(objects, &wide.Items[i])
	}
	return visibility.Static(objects, identity)
}

func (h *hubUnderTest) scope(t testing.TB, identity user.Info) visibility.Scope {
	t.Helper()
	scope, err := h.Scope(t.Context(), identity)
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

// bind binds the ClusterRole pods to a user in a namespace.
func (h *hubUnderTest) bind(t testing.TB, namespace, name string) {
	t.Helper()
	_, err := h.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pods"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (h *hubUnderTest) unbind(t testing.TB, namespace, name string) {
	t.Helper()
	if err := h.client.RbacV1().RoleBindings(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// grant sets the verbs on pods in the ClusterRole pods.
func (h *hubUnderTest) grant(t testing.TB, verbs ...string) {
	t.Helper()
	_, err := h.client.RbacV1().ClusterRoles().Update(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "pods", Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}},
	}, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// notified waits for a notification after an event.
func notified(t testing.TB, what string, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(await.Patience):
		t.Fatalf("no notification within %s, want one because %s", await.Patience, what)
	}
}
