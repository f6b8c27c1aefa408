package clusterclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// The cluster accepts all requests before, during and after a rotation. The clients use
// the configuration and a copy of it.
func TestRotation(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	config := c.config(c.source(clusterclient.Options{}))
	first, second := client(t, config), client(t, rest.CopyConfig(config))
	c.uses(first, id)

	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.tokenOf(ctx, second); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		c.uses(first, c.rotate())
	}
	if refused := c.front.refused(); refused != 0 {
		t.Errorf("refused requests = %d, want 0", refused)
	}
}

// If a token is revoked before the watch delivers the new one, the cluster rejects one
// request. The client repeats it with the new token.
func TestRevokedTokenIsReadAgain(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	it := client(t, c.config(c.source(clusterclient.Options{})))
	c.uses(it, id)

	c.watch.close()
	c.recreateServiceAccount()
	// The API server caches accepted tokens for some seconds.
	c.uses(it, c.rotate())
	if refused := c.front.refused(); refused != 1 {
		t.Errorf("refused requests = %d, want 1", refused)
	}
}

// Without a new token, the cluster rejects the requests of an account, and the client does
// not read the Secret for each of them.
func TestRevokedPermanently(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	it := client(t, c.config(c.source(clusterclient.Options{})))
	c.uses(it, id)

	c.recreateServiceAccount()
	await.Eventually(t, "the cluster rejects the token", func(ctx context.Context) error {
		if _, err := c.tokenOf(ctx, it); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("error = %v, want 401", err)
		}
		return nil
	})
	const requests = 200
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range requests / 4 {
				if _, err := c.tokenOf(t.Context(), it); !apierrors.IsUnauthorized(err) {
					t.Errorf("error = %v, want 401", err)
				}
			}
		})
	}
	all.Wait()
	if reads := c.reads.Load(); reads >= requests/2 {
		t.Errorf("reads of the Secret = %d for %d requests, want fewer than half", reads, requests)
	}
	c.comesToUse(it, c.rotate())
}

func TestSecretDeletedAndRecreated(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	source := c.source(clusterclient.Options{})
	it := client(t, c.config(source))
	c.uses(it, id)

	must(t, func() error {
		return c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), robot, metav1.DeleteOptions{})
	})
	await.Eventually(t, "Config returns an error without a Secret", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := source.Config(ctx); err == nil {
			return errors.New("Config() = nil, want an error")
		}
		return nil
	})
	// The existing client keeps its token. The cluster decides whether the token is valid.
	c.uses(it, id)
	id = c.rotate()
	c.uses(it, id)
	c.uses(client(t, c.config(source)), id)
}

// Without a token, Config returns when its context ends, with an error that names the missing
// part.
func TestNoToken(t *testing.T) {
	c := newCluster(t)
	reader, err := clusterclient.NewHub(c.reader)
	if err != nil {
		t.Fatal(err)
	}
	says := func(source *clusterclient.Source, want string) {
		t.Helper()
		await.Eventually(t, "the error of Config contains "+want, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			_, err := source.Config(ctx)
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("Config() = %v, want DeadlineExceeded with %q", err, want)
			}
			return nil
		})
	}

	stopped, err := reader.Source(c.name, robot, clusterclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	says(stopped, "Run is not running")

	source := c.source(clusterclient.Options{})
	says(source, "there is no Secret robot in namespace "+c.name)

	token, _ := c.mint()
	c.report(token, []byte("no certificate"))
	says(source, "ca.crt: it contains no PEM certificate")
	c.report("", c.front.ca())
	says(source, "it has no token")
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, authenticationv1beta1.ManagedServiceAccountLabel)
	must(t, func() error {
		_, err := c.kube.CoreV1().Secrets(c.name).Patch(t.Context(), robot, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	says(source, "it does not have the label "+authenticationv1beta1.ManagedServiceAccountLabel)

	id := c.rotate()
	c.uses(client(t, c.config(source)), id)

	must(t, func() error {
		patch := `{"spec":{"managedClusterClientConfigs":[{"url":"http://127.0.0.1"}]}}`
		_, err := c.ocm.ClusterV1().ManagedClusters().Patch(t.Context(), c.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	says(source, "is not an https URL")
	must(t, func() error {
		return c.ocm.ClusterV1().ManagedClusters().Delete(t.Context(), c.name, metav1.DeleteOptions{})
	})
	says(source, "there is no ManagedCluster "+c.name)

	if err := c.kube.RbacV1().RoleBindings(c.name).Delete(t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := client(t, c.reader)
	await.Eventually(t, "the hub rejects reads of the Secret", func(ctx context.Context) error {
		_, err := theirs.CoreV1().Secrets(c.name).Get(ctx, robot, metav1.GetOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("Get(Secret %s) = %v, want Forbidden", robot, err)
		}
		return nil
	})
	says(c.source(clusterclient.Options{Host: c.front.URL}), "forbidden")
}

// With a given address, the source needs neither the ManagedCluster nor permission to read it.
func TestHost(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	must(t, func() error {
		return c.ocm.ClusterV1().ManagedClusters().Delete(t.Context(), c.name, metav1.DeleteOptions{})
	})
	must(t, func() error {
		return c.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "reader-of-"+c.name, metav1.DeleteOptions{})
	})
	c.uses(client(t, c.config(c.source(clusterclient.Options{Host: strings.TrimPrefix(c.front.URL, "https://")}))), id)

	reader, err := clusterclient.NewHub(c.reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Source(c.name, robot, clusterclient.Options{Host: "http://127.0.0.1"}); err == nil {
		t.Error("Source() with an address without TLS = nil, want an error")
	}
}

// The bundle of the ManagedCluster applies in addition to the bundle of the Secret. The client also
// uses later versions of it.
func TestBundleOfTheManagedCluster(t *testing.T) {
	c := newCluster(t)
	old := c.front.ca()
	publish := func() {
		t.Helper()
		cluster, err := c.ocm.ClusterV1().ManagedClusters().Get(t.Context(), c.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cluster.Spec.ManagedClusterClientConfigs[0].CABundle = c.front.ca()
		if _, err := c.ocm.ClusterV1().ManagedClusters().Update(t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.front.renew(t)
	publish()
	token, id := c.mint()
	c.report(token, old)
	it := client(t, c.config(c.source(clusterclient.Options{})))
	c.uses(it, id)

	c.front.renew(t)
	publish()
	c.front.CloseClientConnections()
	c.comesToUse(it, id)
}

// The client uses a new bundle without a restart. New requests do not use connections that
// were verified with the old bundle.
func TestBundleRollsOver(t *testing.T) {
	c := newCluster(t)
	token, id := c.mint()
	c.report(token, c.front.ca())
	it := client(t, c.config(c.source(clusterclient.Options{})))
	c.allow(robot, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: c.name, Name: robot}, c.name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch"}})
	var events watch.Interface
	await.Eventually(t, "the watch starts", func(context.Context) error {
		var err error
		events, err = it.CoreV1().ConfigMaps(c.name).Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()
	verified := c.front.last()
	c.uses(it, id)
	if used := c.front.last(); used != verified {
		t.Fatalf("connection of a second request = %s, want %s: the test requires that connections are reused", used, verified)
	}

	c.front.renew(t)
	c.report(token, c.front.ca())
	await.Eventually(t, "requests use a new connection", func(ctx context.Context) error {
		c.uses(it, id)
		if c.front.last() == verified {
			return errors.New("requests use a connection that was verified with the old bundle")
		}
		return nil
	})
	// A request in progress continues.
	must(t, func() error {
		_, err := c.kube.CoreV1().ConfigMaps(c.name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
		return err
	})
	for event := range events.ResultChan() {
		if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Name == "after" {
			return
		}
	}
	t.Error("watch has ended, want it open")
}

// A server that the bundle does not verify never receives a request. If the Secret has a newer
// bundle than the watch delivered, the client reads it and repeats the request.
func TestUnverifiedServer(t *testing.T) {
	c := newCluster(t)
	token, id := c.mint()
	c.report(token, c.front.ca())
	it := client(t, c.config(c.source(clusterclient.Options{})))
	c.uses(it, id)

	c.watch.close()
	c.front.renew(t)
	c.front.CloseClientConnections()
	requests := c.front.requests()
	await.Eventually(t, "the client rejects the certificate of the server", func(ctx context.Context) error {
		_, err := c.tokenOf(ctx, it)
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("error = %v, want one about the certificate", err)
		}
		if !strings.Contains(err.Error(), c.front.URL) {
			t.Errorf("error = %v, want one that contains %s", err, c.front.URL)
		}
		return nil
	})
	if got := c.front.requests(); got != requests {
		t.Errorf("requests to the server = %d, want %d", got, requests)
	}
	c.report(token, c.front.ca())
	// The client has just read the Secret, and reads it again only after a delay.
	c.comesToUse(it, id)
}

// An anonymous copy of the configuration does not contain the token, and the client does not
// send the token to the target of a redirect.
func TestTokenIsNotSentElsewhere(t *testing.T) {
	c := newCluster(t)
	c.rotate()
	config := c.config(c.source(clusterclient.Options{}))
	_, err := c.tokenOf(t.Context(), client(t, rest.AnonymousClientConfig(config)))
	if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		t.Errorf("request of an anonymous client = %v, want 401 or 403", err)
	}

	seen := make(chan http.Header, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { seen <- request.Header }))
	defer elsewhere.Close()
	requests, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := requests.Get(config.Host + "/version?redirect=" + elsewhere.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if header := <-seen; header.Get("Authorization") != "" {
		t.Error("the target of a redirect received the token, want no Authorization header")
	}

	// As in all of client-go, credentials that the caller sets take precedence.
	own := rest.CopyConfig(config)
	own.BearerToken = "no token"
	if _, err := c.tokenOf(t.Context(), client(t, own)); !apierrors.IsUnauthorized(err) {
		t.Errorf("request with another token = %v, want 401", err)
	}
}

// Connections that client-go opens separately, such as for exec, use the token as well.
func TestUpgradedConnections(t *testing.T) {
	c := newCluster(t)
	token, _ := c.mint()
	c.report(token, c.front.ca())
	config := c.config(c.source(clusterclient.Options{}))
	var sent string
	upgrading, err := rest.HTTPWrappersForConfig(config, exchange(func(request *http.Request) (*http.Response, error) {
		sent = request.Header.Get("Authorization")
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: http.NoBody}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := upgrading.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); sent != "Bearer "+token {
		t.Error("the request has no Authorization header with the token, want one")
	}
}
