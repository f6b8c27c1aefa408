package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// GrantRole is the ClusterRole for users with permission to grant any rule on a cluster.
const GrantRole = "open-cluster-management:clusterpermission:grant"

// Caller is a user or a ServiceAccount of the hub with its clients.
type Caller struct {
	Name    string
	Groups  []string
	Subject rbacv1.Subject
	Config  *rest.Config
	OCM     *versioned.Clientset
	// HubClient is a client of the hub's administrator.
	HubClient *kubernetes.Clientset
	// Kubeconfig is empty for a ServiceAccount.
	Kubeconfig string
	Warnings   Warnings
}

// NewCaller returns a user of the hub without permissions.
func NewCaller(t *testing.T, hub *localhub.Cluster, name string, groups ...string) *Caller {
	t.Helper()
	c := &Caller{
		Name: name, Groups: append(groups, "system:authenticated"), Subject: *UserSubject(name),
		Kubeconfig: filepath.Join(OwnDir(t), name+".kubeconfig"),
	}
	if err := hub.WriteKubeconfig(c.Kubeconfig, name, groups...); err != nil {
		t.Fatal(err)
	}
	c.connect(t, hub, Must(hub.UserConfig(name, groups...))(t))
	return c
}

// NewAccountCaller returns a ServiceAccount of the hub without permissions.
func NewAccountCaller(t *testing.T, hub *localhub.Cluster, namespace, name string) *Caller {
	t.Helper()
	c := &Caller{
		Name:    "system:serviceaccount:" + namespace + ":" + name,
		Groups:  []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name},
	}
	c.connect(t, hub, Must(hub.ServiceAccountConfig(t.Context(), namespace, name))(t))
	return c
}

func (c *Caller) connect(t *testing.T, hub *localhub.Cluster, config *rest.Config) {
	t.Helper()
	c.Config = config
	c.Config.WarningHandler = &c.Warnings
	c.OCM = OCMClient(t, c.Config, nil)
	c.HubClient = Must(kubernetes.NewForConfig(hub.AdminConfig()))(t)
}

// At returns a client that connects to one server directly, not through the hub, as the caller.
func (c *Caller) At(t *testing.T, server *localhub.APIServer) *versioned.Clientset {
	t.Helper()
	config, err := server.UserConfig(c.Name, c.Groups...)
	if err == nil {
		config.WarningHandler = &c.Warnings
	}
	return OCMClient(t, config, err)
}

// Kubectl runs kubectl as the caller and returns its output.
func (c *Caller) Kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return (&Fleet{Kubeconfig: c.Kubeconfig}).Kubectl(t, stdin, args...)
}

// Clusteradm runs clusteradm as the caller. It returns standard output, standard error and the exit
// code.
func (c *Caller) Clusteradm(t *testing.T, args ...string) (string, string, int) {
	t.Helper()
	path := Must(localhub.Binary(localhub.BinDir(), "clusteradm"))(t)
	command := exec.CommandContext(t.Context(), path, args...)
	command.Env = append(command.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), stderr.String(), command.ProcessState.ExitCode()
}

// May binds a new Role in a namespace of the hub to the caller, and waits until the hub allows its
// rules. The returned function deletes the binding.
func (c *Caller) May(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) func() {
	t.Helper()
	role := Must(c.HubClient.RbacV1().Roles(namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}, metav1.CreateOptions{}))(t)
	deleteLater(t, c.HubClient.RbacV1().Roles(namespace).Delete, role.Name)
	unbind := c.Bind(t, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
	for _, rule := range rules {
		c.AwaitAllowed(t, namespace, rule)
	}
	return unbind
}

// Bind binds a role in a namespace of the hub to the caller until the end of the test, or until the
// returned function is called.
func (c *Caller) Bind(t *testing.T, namespace string, role rbacv1.RoleRef) func() {
	t.Helper()
	bindings := c.HubClient.RbacV1().RoleBindings(namespace)
	binding := Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: role, Subjects: []rbacv1.Subject{c.Subject},
	}, metav1.CreateOptions{}))(t)
	return deleteLater(t, bindings.Delete, binding.Name)
}

// AwaitAllowed waits until the hub allows the caller every verb of a rule on the rule's first
// resource. Our server caches the decisions of the hub for seconds. If a test sends a request before
// the hub has the role in its cache, our server returns the old decision.
func (c *Caller) AwaitAllowed(t *testing.T, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, verb := range rule.Verbs {
		Eventually(t, fmt.Sprintf("the hub allows %s to %s %s", c.Name, verb, rule.Resources[0]), func(ctx context.Context) error {
			name := ""
			if len(rule.ResourceNames) > 0 {
				name = rule.ResourceNames[0]
			}
			allowed, err := c.Allowed(ctx, namespace, verb, rule.APIGroups[0], rule.Resources[0], name)
			if err == nil && !allowed {
				err = errors.New("SubjectAccessReview = denied, want allowed")
			}
			return err
		})
	}
}

// Allowed reports whether the hub allows the caller a verb.
func (c *Caller) Allowed(ctx context.Context, namespace, verb, group, resource, name string) (bool, error) {
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := c.HubClient.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: c.Name, Groups: c.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// Permissions returns the caller's client for the ClusterPermissions of Cluster1.
func (c *Caller) Permissions() rbacclient.ClusterPermissionInterface {
	return c.OCM.RbacV1alpha1().ClusterPermissions(Cluster1)
}

// Is binds a ClusterRole of the hub to the caller in the namespace Cluster1. It waits until the hub
// allows one verb on one resource that the ClusterRole contains.
func (c *Caller) Is(t *testing.T, clusterRole, verb, resource string) *Caller {
	t.Helper()
	c.Bind(t, Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole})
	c.AwaitAllowed(t, Cluster1, rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{resource}, Verbs: []string{verb}})
	return c
}

// IsAdmin makes the caller an administrator of the namespace Cluster1.
func (c *Caller) IsAdmin(t *testing.T) *Caller {
	t.Helper()
	return c.Is(t, "admin", "create", "clusterpermissions")
}

// IsGranter allows the caller to grant any rule on Cluster1.
func (c *Caller) IsGranter(t *testing.T) *Caller {
	t.Helper()
	return c.Is(t, GrantRole, "escalate", "clusterpermissions")
}

// CreateRole creates a Role, which is deleted at the end of the test.
func CreateRole(t *testing.T, client kubernetes.Interface, role *rbacv1.Role) {
	t.Helper()
	Must(client.RbacV1().Roles(role.Namespace).Create(t.Context(), role, metav1.CreateOptions{}))(t)
	deleteLater(t, client.RbacV1().Roles(role.Namespace).Delete, role.Name)
}

// CreateClusterRole creates a ClusterRole, which is deleted at the end of the test.
func CreateClusterRole(t *testing.T, client kubernetes.Interface, role *rbacv1.ClusterRole) {
	t.Helper()
	Must(client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	deleteLater(t, client.RbacV1().ClusterRoles().Delete, role.Name)
}

// Warnings collects the Warning headers of a client.
type Warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *Warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// Take returns the warnings since the last call.
func (w *Warnings) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}
