package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// grantRole is the ClusterRole that lets grant anything on a cluster.
const grantRole = "open-cluster-management:clusterpermission:grant"

// caller is somebody on the hub who may do what its roles there say, and nothing else.
type caller struct {
	name    string
	groups  []string
	subject rbacv1.Subject
	config  *rest.Config
	ocm     *versioned.Clientset
	// hub is the client of the hub's administrator.
	hub *kubernetes.Clientset
	// kubeconfig is empty for a ServiceAccount.
	kubeconfig string
	warnings   warnings
}

// newCaller returns a user who may do nothing yet.
func newCaller(t *testing.T, hub *localhub.Cluster, name string, groups ...string) *caller {
	t.Helper()
	c := &caller{
		name: name, groups: append(groups, "system:authenticated"), subject: *user(name),
		kubeconfig: filepath.Join(ownDir(t), name+".kubeconfig"),
	}
	if err := hub.WriteKubeconfig(c.kubeconfig, name, groups...); err != nil {
		t.Fatal(err)
	}
	c.connect(t, hub, must(hub.UserConfig(name, groups...))(t))
	return c
}

// newAccountCaller returns a ServiceAccount of the hub that may do nothing yet.
func newAccountCaller(t *testing.T, hub *localhub.Cluster, namespace, name string) *caller {
	t.Helper()
	c := &caller{
		name:    "system:serviceaccount:" + namespace + ":" + name,
		groups:  []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name},
	}
	c.connect(t, hub, must(hub.ServiceAccountConfig(t.Context(), namespace, name))(t))
	return c
}

func (c *caller) connect(t *testing.T, hub *localhub.Cluster, config *rest.Config) {
	t.Helper()
	c.config = config
	c.config.WarningHandler = &c.warnings
	c.ocm = ocmClient(t, c.config, nil)
	c.hub = must(kubernetes.NewForConfig(hub.AdminConfig()))(t)
}

func (c *caller) permissions() rbacclient.ClusterPermissionInterface {
	return c.ocm.RbacV1alpha1().ClusterPermissions(cluster1)
}

func (c *caller) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return (&fleet{kubeconfig: c.kubeconfig}).kubectl(t, stdin, args...)
}

// is gives the caller a ClusterRole of the hub in the namespace of the cluster, and
// waits until the hub knows it by one thing that it allows.
func (c *caller) is(t *testing.T, clusterRole, verb, resource string) *caller {
	t.Helper()
	c.bind(t, cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole})
	c.awaitAllowed(t, cluster1, rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{resource}, Verbs: []string{verb}})
	return c
}

// isAdmin makes the caller an administrator of the namespace of the cluster.
func (c *caller) isAdmin(t *testing.T) *caller {
	t.Helper()
	return c.is(t, "admin", "create", "clusterpermissions")
}

// isGranter lets the caller grant anything on the cluster.
func (c *caller) isGranter(t *testing.T) *caller {
	t.Helper()
	return c.is(t, grantRole, "escalate", "clusterpermissions")
}

// may gives the caller a Role of its own in a namespace of the hub, and returns what
// takes it away again.
func (c *caller) may(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) func() {
	t.Helper()
	role := must(c.hub.RbacV1().Roles(namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := c.hub.RbacV1().Roles(namespace).Delete(context.WithoutCancel(t.Context()), role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	unbind := c.bind(t, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
	for _, rule := range rules {
		c.awaitAllowed(t, namespace, rule)
	}
	return unbind
}

// mayGrant are the verbs of clusterpermissions that are about granting.
func mayGrant(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: verbs}
}

// bind binds a role in a namespace of the hub until the end of the test, or until
// what it returns is called.
func (c *caller) bind(t *testing.T, namespace string, role rbacv1.RoleRef) func() {
	t.Helper()
	bindings := c.hub.RbacV1().RoleBindings(namespace)
	binding := must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: role, Subjects: []rbacv1.Subject{c.subject},
	}, metav1.CreateOptions{}))(t)
	unbind := func() {
		err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(unbind)
	return unbind
}

// awaitAllowed waits until the hub allows the caller what a rule says of its first
// resource. Our server remembers for seconds what the hub has answered, so nothing
// may be asked of it that depends on a role before the hub knows the role.
func (c *caller) awaitAllowed(t *testing.T, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, verb := range rule.Verbs {
		eventually(t, fmt.Sprintf("the hub lets %s %s %s", c.name, verb, rule.Resources[0]), func(ctx context.Context) error {
			name := ""
			if len(rule.ResourceNames) > 0 {
				name = rule.ResourceNames[0]
			}
			allowed, err := c.allowed(ctx, namespace, verb, rule.APIGroups[0], rule.Resources[0], name)
			if err == nil && !allowed {
				err = errors.New("it does not")
			}
			return err
		})
	}
}

// allowed is what the hub itself says that the caller may do.
func (c *caller) allowed(ctx context.Context, namespace, verb, group, resource, name string) (bool, error) {
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := c.hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: c.name, Groups: c.groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// warnings are the Warning headers that a client has got.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// refusedFor checks that a request was refused with 403 for exactly the grants of
// these lines, and returns the rule that is said to allow it.
func refusedFor(t *testing.T, err error, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("got %v, not 403", err)
	}
	return refusedWith(t, err.Error(), lines...)
}

// refusedWith is refusedFor of the text of a refusal.
func refusedWith(t *testing.T, message string, lines ...string) rbacv1.PolicyRule {
	t.Helper()
	const head = "may not grant what it does not hold on managed cluster \"" + cluster1 + "\":\n"
	const takes = "\nit takes a Role in namespace \"" + cluster1 + "\" with the rule "
	_, body, refused := strings.Cut(strings.TrimSpace(message), head)
	missing, text, said := strings.Cut(body, takes)
	if !refused || !said {
		t.Fatalf("no refusal to grant, but:\n%s", message)
	}
	if want := strings.Join(lines, "\n"); missing != want {
		t.Fatalf("refused for\n%s\nnot for\n%s", missing, want)
	}
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
		t.Fatalf("the rule cannot be pasted into a role: %v\n%s", err, text)
	}
	return rule
}

// missingOf are the lines of what permission(name) grants.
func missingOf(name string) []string {
	const nodesAndPods, pods = `{apiGroups: [""], resources: [nodes, pods], verbs: [get]}`, `{apiGroups: [""], resources: [pods], verbs: [get, list]}`
	return []string{
		"spec.clusterRole, cluster-wide: " + nodesAndPods,
		`spec.roles[0], in namespace "default": ` + pods,
		fmt.Sprintf("spec.clusterRoleBinding, cluster-wide: ClusterRole %q with %s", name, nodesAndPods),
		fmt.Sprintf(`spec.roleBindings[0], in namespace "default": Role %q in namespace "default" with %s`, name, pods),
	}
}

// passes waits until what is created now has arrived on the managed cluster: what
// was to arrive before has arrived as well.
func (f *fleet) passes(t *testing.T, name string) {
	t.Helper()
	create(t, f.ocm, permission(name))
	f.applied(t, name)
}

// notDelivered checks that nothing of a ClusterPermission of that name is on its way.
func (f *fleet) notDelivered(t *testing.T, name string) {
	t.Helper()
	f.passes(t, name+"-marker")
	if works := must(worksOf(t.Context(), f.ocm, name))(t); len(works) > 0 {
		t.Errorf("there is a work %s", works[0].Name)
	}
	for _, o := range objectsOf(name) {
		if _, err := read(t.Context(), f.managed, o); isGone(err) != nil {
			t.Errorf("%s on the managed cluster: %v", o, isGone(err))
		}
	}
}

// notStored checks that there is no ClusterPermission of that name and no work of one.
func (f *fleet) notStored(t *testing.T, name string) {
	t.Helper()
	if _, err := f.get(t.Context(), name); !apierrors.IsNotFound(err) {
		t.Errorf("%s is stored, or: %v", name, err)
	}
	if works := must(worksOf(t.Context(), f.ocm, name))(t); len(works) > 0 {
		t.Errorf("there is a work %s", works[0].Name)
	}
}
