package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"open-cluster-management.io/hub-apiserver/pkg/tokens"
)

// Requests before, during and after a rotation are all accepted, by clients of
// the configuration and of a copy of it.
func TestRotation(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	config := c.config(c.source(tokens.Options{}))
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
		t.Errorf("%d requests were refused", refused)
	}
}

// A token that is worthless at once, before the watch tells of the new one, costs
// one refused request, which is repeated with the new token.
func TestRevokedTokenIsReadAgain(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	it := client(t, c.config(c.source(tokens.Options{})))
	c.uses(it, id)

	c.watch.close()
	c.recreateServiceAccount()
	// The API server remembers for some seconds that it has accepted the old token.
	c.uses(it, c.rotate())
	if refused := c.front.refused(); refused != 1 {
		t.Errorf("%d requests were refused, want 1", refused)
	}
}

// An account without a new token has its requests refused, and the hub is not
// asked for each.
func TestRevokedForGood(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	it := client(t, c.config(c.source(tokens.Options{})))
	c.uses(it, id)

	c.recreateServiceAccount()
	eventually(t, "the token is refused", func(ctx context.Context) error {
		if _, err := c.tokenOf(ctx, it); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	const requests = 200
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range requests / 4 {
				if _, err := c.tokenOf(t.Context(), it); !apierrors.IsUnauthorized(err) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	all.Wait()
	if reads := c.reads.Load(); reads >= requests/2 {
		t.Errorf("the Secret was read %d times for %d requests", reads, requests)
	}
	c.comesToUse(it, c.rotate())
}

func TestSecretDeletedAndRecreated(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	source := c.source(tokens.Options{})
	it := client(t, c.config(source))
	c.uses(it, id)

	must(t, func() error {
		return c.kube.CoreV1().Secrets(c.name).Delete(t.Context(), robot, metav1.DeleteOptions{})
	})
	eventually(t, "there is no configuration without a Secret", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := source.Config(ctx); err == nil {
			return errors.New("there is one")
		}
		return nil
	})
	// What was made before goes on: the cluster is to judge the token.
	c.uses(it, id)
	id = c.rotate()
	c.uses(it, id)
	c.uses(client(t, c.config(source)), id)
}

// Without a token, Config ends with its context and says what is missing.
func TestNoToken(t *testing.T) {
	c := newCluster(t)
	reader, err := tokens.NewHub(c.reader)
	if err != nil {
		t.Fatal(err)
	}
	says := func(source *tokens.Source, want string) {
		t.Helper()
		eventually(t, "the error says "+want, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			_, err := source.Config(ctx)
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("it says %v", err)
			}
			return nil
		})
	}

	stopped, err := reader.Source(c.name, robot, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	says(stopped, "Run is not running")

	source := c.source(tokens.Options{})
	says(source, "there is no Secret robot in namespace "+c.name)

	token, _ := c.mint()
	c.report(token, []byte("no certificate"))
	says(source, "ca.crt: there is no PEM certificate")
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
	says(source, "is no https address")
	must(t, func() error {
		return c.ocm.ClusterV1().ManagedClusters().Delete(t.Context(), c.name, metav1.DeleteOptions{})
	})
	says(source, "there is no ManagedCluster "+c.name)

	if err := c.kube.RbacV1().RoleBindings(c.name).Delete(t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := client(t, c.reader)
	eventually(t, "the hub forbids it", func(ctx context.Context) error {
		_, err := theirs.CoreV1().Secrets(c.name).Get(ctx, robot, metav1.GetOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	says(c.source(tokens.Options{Host: c.front.URL}), "forbidden")
}

// With the address given, the ManagedCluster is not needed, nor the right to read it.
func TestHost(t *testing.T) {
	c := newCluster(t)
	id := c.rotate()
	must(t, func() error {
		return c.ocm.ClusterV1().ManagedClusters().Delete(t.Context(), c.name, metav1.DeleteOptions{})
	})
	must(t, func() error {
		return c.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "reader-of-"+c.name, metav1.DeleteOptions{})
	})
	c.uses(client(t, c.config(c.source(tokens.Options{Host: strings.TrimPrefix(c.front.URL, "https://")}))), id)

	reader, err := tokens.NewHub(c.reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Source(c.name, robot, tokens.Options{Host: "http://127.0.0.1"}); err == nil {
		t.Error("an address that is not encrypted is accepted")
	}
}

// The ManagedCluster's own bundle counts beside that of the Secret, and is followed as well.
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
	it := client(t, c.config(c.source(tokens.Options{})))
	c.uses(it, id)

	c.front.renew(t)
	publish()
	c.front.CloseClientConnections()
	c.comesToUse(it, id)
}

// A new bundle is used without a restart: at once for new requests, which do not
// go over connections that the old one has verified.
func TestBundleRollsOver(t *testing.T) {
	c := newCluster(t)
	token, id := c.mint()
	c.report(token, c.front.ca())
	it := client(t, c.config(c.source(tokens.Options{})))
	c.allow(robot, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: c.name, Name: robot}, c.name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch"}})
	var events watch.Interface
	eventually(t, "the watch starts", func(context.Context) error {
		var err error
		events, err = it.CoreV1().ConfigMaps(c.name).Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()
	verified := c.front.last()
	c.uses(it, id)
	if used := c.front.last(); used != verified {
		t.Fatalf("a second request goes over %s, not over %s; this test cannot tell anything", used, verified)
	}

	c.front.renew(t)
	c.report(token, c.front.ca())
	eventually(t, "requests go over another connection", func(ctx context.Context) error {
		c.uses(it, id)
		if c.front.last() == verified {
			return errors.New("they go over one that the old bundle has verified")
		}
		return nil
	})
	// What was under way goes on.
	must(t, func() error {
		_, err := c.kube.CoreV1().ConfigMaps(c.name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
		return err
	})
	for event := range events.ResultChan() {
		if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Name == "after" {
			return
		}
	}
	t.Error("the watch has ended")
}

// A server that the bundle does not verify never sees a request. When the Secret
// has a newer bundle than the watch has told of, it is read and tried.
func TestUnverifiedServer(t *testing.T) {
	c := newCluster(t)
	token, id := c.mint()
	c.report(token, c.front.ca())
	it := client(t, c.config(c.source(tokens.Options{})))
	c.uses(it, id)

	c.watch.close()
	c.front.renew(t)
	c.front.CloseClientConnections()
	requests := c.front.requests()
	eventually(t, "the server is not trusted", func(ctx context.Context) error {
		_, err := c.tokenOf(ctx, it)
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("got %v", err)
		}
		if !strings.Contains(err.Error(), c.front.URL) {
			t.Errorf("the error does not say where: %v", err)
		}
		return nil
	})
	if got := c.front.requests(); got != requests {
		t.Error("the server saw the request")
	}
	c.report(token, c.front.ca())
	// The Secret was read a moment ago, which bounds when it is read again.
	c.comesToUse(it, id)
}

// The token is in no copy that is made to have none, and in no request that a
// redirect leads elsewhere.
func TestTokenStaysWhereItBelongs(t *testing.T) {
	c := newCluster(t)
	c.rotate()
	config := c.config(c.source(tokens.Options{}))
	_, err := c.tokenOf(t.Context(), client(t, rest.AnonymousClientConfig(config)))
	if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		t.Errorf("an anonymous client got %v", err)
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
		t.Error("a redirect took the token to another server")
	}

	// A caller's own credentials win, as everywhere in client-go.
	own := rest.CopyConfig(config)
	own.BearerToken = "no token"
	if _, err := c.tokenOf(t.Context(), client(t, own)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client with a token of its own got %v", err)
	}
}

// What client-go does over connections of its own, such as exec, has the token too.
func TestUpgradedConnections(t *testing.T) {
	c := newCluster(t)
	token, _ := c.mint()
	c.report(token, c.front.ca())
	config := c.config(c.source(tokens.Options{}))
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
		t.Error("the request does not have the token")
	}
}

func TestList(t *testing.T) {
	c := newCluster(t)
	expires := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	reported := func(status metav1.ConditionStatus) authenticationv1beta1.ManagedServiceAccountStatus {
		return authenticationv1beta1.ManagedServiceAccountStatus{
			Conditions: []metav1.Condition{{Type: authenticationv1beta1.ConditionTokenReported, Status: status,
				Reason: "R", Message: "says why", LastTransitionTime: metav1.Now()}},
			ExpirationTimestamp: &expires,
			ServiceAccountRef:   &authenticationv1beta1.ServiceAccountReference{Namespace: "agents", Name: c.name},
		}
	}
	expired := reported(metav1.ConditionTrue)
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	expired.ExpirationTimestamp = &past
	child := map[string]string{authenticationv1beta1.ParentNamespaceLabel: c.name}
	for _, suffix := range []string{"-a", "-b", "-c"} {
		c.createNamespace(c.name + suffix)
	}
	for _, account := range []authenticationv1beta1.ManagedServiceAccount{
		{ObjectMeta: metav1.ObjectMeta{Namespace: c.name, Name: c.name},
			Status: authenticationv1beta1.ManagedServiceAccountStatus{Clusters: &authenticationv1beta1.ClusterSummary{Total: 2}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: c.name + "-a", Name: c.name, Labels: child}, Status: reported(metav1.ConditionTrue)},
		{ObjectMeta: metav1.ObjectMeta{Namespace: c.name + "-b", Name: c.name, Labels: child}, Status: reported(metav1.ConditionFalse)},
		{ObjectMeta: metav1.ObjectMeta{Namespace: c.name + "-c", Name: c.name}, Status: expired},
		{ObjectMeta: metav1.ObjectMeta{Namespace: c.name + "-c", Name: "another"}},
	} {
		must(t, func() error {
			_, err := c.ocm.AuthenticationV1beta1().ManagedServiceAccounts(account.Namespace).Create(t.Context(), &account, metav1.CreateOptions{})
			return err
		})
	}

	reader, err := tokens.NewHub(c.reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.List(t.Context(), tokens.ListOptions{Name: c.name}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v without the right to list", err)
	}
	c.allow("lister-of-"+c.name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader of " + c.name}, "", rbacv1.PolicyRule{
		APIGroups: []string{authenticationv1beta1.GroupName}, Resources: []string{"managedserviceaccounts"}, ResourceNames: []string{c.name}, Verbs: []string{"list"}})
	var got []tokens.Account
	eventually(t, "listing by name is allowed", func(ctx context.Context) error {
		got, err = reader.List(ctx, tokens.ListOptions{Name: c.name})
		return err
	})
	account := tokens.Account{Cluster: c.name + "-a", Name: c.name, SetNamespace: c.name, Ready: true,
		ServiceAccount: types.NamespacedName{Namespace: "agents", Name: c.name}, Expires: expires.Time}
	notReady, own := account, account
	notReady.Cluster, notReady.Ready, notReady.Message = c.name+"-b", false, "says why"
	own.Cluster, own.SetNamespace, own.Ready, own.Message, own.Expires = c.name+"-c", "", false, "The token has expired.", past.Truncate(time.Second)
	same := func(a, b tokens.Account) bool {
		expire := a.Expires.Equal(b.Expires)
		a.Expires, b.Expires = time.Time{}, time.Time{}
		return expire && a == b
	}
	if want := []tokens.Account{account, notReady, own}; !slices.EqualFunc(got, want, same) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, err = reader.List(t.Context(), tokens.ListOptions{Name: c.name, SetNamespace: c.name}); err != nil {
		t.Fatal(err)
	}
	if want := []tokens.Account{account, notReady}; !slices.EqualFunc(got, want, same) {
		t.Errorf("of the set: got %+v, want %+v", got, want)
	}
}
