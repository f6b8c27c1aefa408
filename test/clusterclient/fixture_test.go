package clusterclient_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	robot = "robot"
)

var (
	// hub is a cluster that is both the hub and the managed cluster.
	hub *localhub.Cluster
	// clusters numbers the names of clusters, because a test may run more than once.
	clusters atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := localhub.ReserveShared(1, 0); err != nil {
		log.Print(err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if hub, err = localhub.NewCluster(localhub.ClusterOptions{Name: "hub", Dir: dir, NoFsync: true, NoControllerManager: true}); err != nil {
		log.Print(err)
		return 1
	}
	defer func() {
		if err := hub.Kill(); err != nil {
			log.Print(err)
		}
	}()
	if err := start(ctx); err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

func start(ctx context.Context) error {
	if err := hub.Start(ctx); err != nil {
		return err
	}
	for _, file := range []string{
		filepath.Join(localhub.Root(), "test", "framework", "testdata", "managedclusters.crd.yaml"),
		filepath.Join("testdata", "managedserviceaccounts.crd.yaml"),
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &crd.Object); err != nil {
			return err
		}
		if err := hub.Apply(ctx, crd); err != nil {
			return err
		}
	}
	ocm, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, managed := ocm.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		_, accounts := ocm.AuthenticationV1beta1().ManagedServiceAccounts("").List(ctx, metav1.ListOptions{})
		return managed == nil && accounts == nil, nil
	})
}

// cluster is one managed cluster: a namespace for the Secret and the ServiceAccount,
// named after the test, and a separate address.
type cluster struct {
	t     *testing.T
	name  string
	front *front
	kube  kubernetes.Interface
	ocm   versioned.Interface
	// reader is a user with permission to read only the Secret and the ManagedCluster.
	reader *rest.Config
	watch  *watchGate
	// reads counts the reader's gets of the Secret.
	reads atomic.Int32
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, name: fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), clusters.Add(1)), front: newFront(t), watch: &watchGate{}}
	var err error
	if c.kube, err = kubernetes.NewForConfig(hub.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if c.ocm, err = versioned.NewForConfig(hub.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if c.reader, err = hub.UserConfig("reader of " + c.name); err != nil {
		t.Fatal(err)
	}
	c.reader.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return exchange(func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/secrets/"+robot) {
				c.reads.Add(1)
			}
			response, err := next.RoundTrip(request)
			if err == nil && request.URL.Query().Get("watch") != "" {
				response.Body = &gatedBody{ReadCloser: response.Body, gate: c.watch, ctx: request.Context()}
			}
			return response, err
		})
	}

	ctx := t.Context()
	c.createNamespace(c.name)
	c.createServiceAccount()
	must(t, func() error {
		_, err := c.ocm.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: c.name},
			Spec: clusterv1.ManagedClusterSpec{
				HubAcceptsClient:            true,
				ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: c.front.URL}},
			},
		}, metav1.CreateOptions{})
		return err
	})
	c.grant()
	return c
}

// grant grants the reader the permissions that the package documentation requires.
func (c *cluster) grant() {
	c.t.Helper()
	read := []string{"get", "list", "watch"}
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader of " + c.name}
	c.allow("reader", user, c.name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{robot}, Verbs: read})
	c.allow("reader-of-"+c.name, user, "", rbacv1.PolicyRule{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters"}, ResourceNames: []string{c.name}, Verbs: read})
}

// allow grants a rule to a subject, in one namespace or in all if namespace is empty.
func (c *cluster) allow(name string, subject rbacv1.Subject, namespace string, rule rbacv1.PolicyRule) {
	c.t.Helper()
	rbac, ctx := c.kube.RbacV1(), c.t.Context()
	object := metav1.ObjectMeta{Name: name}
	rules, subjects := []rbacv1.PolicyRule{rule}, []rbacv1.Subject{subject}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	var errs [2]error
	if namespace == "" {
		_, errs[0] = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: object, Rules: rules}, metav1.CreateOptions{})
		_, errs[1] = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: object, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		role.Kind = "Role"
		_, errs[0] = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: object, Rules: rules}, metav1.CreateOptions{})
		_, errs[1] = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: object, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err := errors.Join(errs[:]...); err != nil {
		c.t.Fatal(err)
	}
}

func must(t *testing.T, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) createNamespace(name string) {
	c.t.Helper()
	must(c.t, func() error {
		_, err := c.kube.CoreV1().Namespaces().Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}

func (c *cluster) createServiceAccount() {
	c.t.Helper()
	must(c.t, func() error {
		_, err := c.kube.CoreV1().ServiceAccounts(c.name).Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}, metav1.CreateOptions{})
		return err
	})
}

// recreateServiceAccount deletes and creates the ServiceAccount, which revokes all existing
// tokens.
func (c *cluster) recreateServiceAccount() {
	c.t.Helper()
	must(c.t, func() error {
		return c.kube.CoreV1().ServiceAccounts(c.name).Delete(c.t.Context(), robot, metav1.DeleteOptions{})
	})
	c.createServiceAccount()
}

// mint returns a new token and its ID.
func (c *cluster) mint() (token, id string) {
	c.t.Helper()
	request, err := c.kube.CoreV1().ServiceAccounts(c.name).CreateToken(c.t.Context(), robot, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	token = request.Status.Token
	content, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		c.t.Fatal(err)
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if err := json.Unmarshal(content, &claims); err != nil {
		c.t.Fatal(err)
	}
	return token, "JTI=" + claims.ID
}

// report writes the Secret as the agent does.
func (c *cluster) report(token string, ca []byte) {
	c.t.Helper()
	secrets := c.kube.CoreV1().Secrets(c.name)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: robot, Labels: map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}},
		Data: map[string][]byte{
			authenticationv1beta1.SecretTokenKey: []byte(token),
			authenticationv1beta1.SecretCAKey:    ca,
		},
	}
	_, err := secrets.Create(c.t.Context(), secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(c.t.Context(), secret, metav1.UpdateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// rotate reports a new token and returns its ID.
func (c *cluster) rotate() string {
	c.t.Helper()
	token, id := c.mint()
	c.report(token, c.front.ca())
	return id
}

// source returns a source that runs until the end of the test, with only the
// permissions of the reader.
func (c *cluster) source(options clusterclient.Options) *clusterclient.Source {
	c.t.Helper()
	reader, err := clusterclient.NewHub(c.reader)
	if err != nil {
		c.t.Fatal(err)
	}
	source, err := reader.Source(c.name, robot, options)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx) })
	c.t.Cleanup(func() { cancel(); running.Wait() })
	return source
}

func (c *cluster) config(source *clusterclient.Source) *rest.Config {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), await.Patience)
	defer cancel()
	config, err := source.Config(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	out, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tokenOf returns the ID of the token that a client uses, as the managed cluster reports it.
// The request has a body.
func (c *cluster) tokenOf(ctx context.Context, client kubernetes.Interface) (string, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if user, want := review.Status.UserInfo.Username, "system:serviceaccount:"+c.name+":"+robot; user != want {
		return "", fmt.Errorf("user of the client = %s, want %s", user, want)
	}
	return strings.Join(review.Status.UserInfo.Extra["authentication.kubernetes.io/credential-id"], ","), nil
}

// uses waits until a client uses a token; no request may fail.
func (c *cluster) uses(client kubernetes.Interface, id string) {
	c.t.Helper()
	c.waitForUse(client, id, func(err error) { c.t.Fatal(err) })
}

// comesToUse waits until a client uses a token; requests may fail until then.
func (c *cluster) comesToUse(client kubernetes.Interface, id string) {
	c.t.Helper()
	c.waitForUse(client, id, func(error) {})
}

func (c *cluster) waitForUse(client kubernetes.Interface, id string, failed func(error)) {
	c.t.Helper()
	await.Eventually(c.t, "the client uses "+id, func(ctx context.Context) error {
		got, err := c.tokenOf(ctx, client)
		if err != nil {
			failed(err)
			return err
		}
		if got != id {
			return fmt.Errorf("token of the client = %s, want %s", got, id)
		}
		return nil
	})
}
