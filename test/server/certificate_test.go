package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	servingSecret = "hub-apiserver-serving"
	servingCA     = servingSecret + "-ca"
	servingHost   = localhub.ServerName + "." + localhub.HubNamespace + ".svc"
	servedGroup   = "rbac.open-cluster-management.io"
	apiService    = "v1alpha1." + servedGroup

	renewals = 2
)

// The lifetimes with which the test sees several renewals. A server renews each in its last third, and must be able to
// do so on a busy machine.
var (
	shortValidity   = await.Scaled(20 * time.Second)
	shortCAValidity = 3 * shortValidity
)

// certified is a hub with two servers, which create their serving certificate.
type certified struct {
	hub        *localhub.Cluster
	kube       *kubernetes.Clientset
	ocm        *versioned.Clientset
	aggregator *aggregator.Clientset
	servers    []*localhub.APIServer
	// port forwards connections to the servers in turn.
	port int
}

func TestServingCertificate(t *testing.T) {
	t.Parallel()
	c := newCertified(t)
	t.Run("reports missing permissions", c.reportsMissingPermissions)
	t.Run("renews certificates without a failed request", c.renewsWithoutFailures)
	t.Run("repairs what others delete or change", c.repairs)
	t.Run("serves the Secret of a user unchanged", c.servesSecretOfUser)
}

func newCertified(t *testing.T) *certified {
	t.Helper()
	c := &certified{hub: framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub", NoControllerManager: true})}
	c.kube = framework.Must(kubernetes.NewForConfig(c.hub.AdminConfig()))(t)
	c.ocm = framework.Must(versioned.NewForConfig(c.hub.AdminConfig()))(t)
	c.aggregator = framework.Must(aggregator.NewForConfig(c.hub.AdminConfig()))(t)
	grants := framework.Must(localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "rbac")))(t)
	if err := c.hub.Apply(t.Context(), grants...); err != nil {
		t.Fatal(err)
	}
	dir := framework.OwnDir(t)
	etcd := framework.OwnEtcd(t, "etcd", dir)
	for i := range 2 {
		server := framework.NewServer(t, localhub.APIServerOptions{
			Hub: c.hub, Name: fmt.Sprintf("server-%d", i), Dir: filepath.Join(dir, strconv.Itoa(i)), Granted: true, EtcdServers: []string{etcd.Endpoint},
			Args: []string{
				"--tls-cert-file=", "--tls-private-key-file=", "--search-engine=none", "--serving-certificate-secret=" + servingSecret,
				"--serving-certificate-validity=" + shortValidity.String(), "--serving-ca-validity=" + shortCAValidity.String(),
				// The hub must connect often, since it verifies the certificate of a new connection only.
				"--goaway-chance=0.02",
			},
		})
		direct := framework.Must(kubernetes.NewForConfig(c.direct(t, server)))(t)
		server.Ready = func(ctx context.Context) error {
			body, err := direct.RESTClient().Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx)
			if err != nil {
				return fmt.Errorf("%w: %s", err, body)
			}
			return nil
		}
		c.servers = append(c.servers, server)
	}
	c.port = c.balance(t)
	return c
}

// direct returns a client configuration for one server, which does not verify its certificate.
func (c *certified) direct(t *testing.T, server *localhub.APIServer) *rest.Config {
	t.Helper()
	config := framework.Must(server.UserConfig("admin", "system:masters"))(t)
	config.CAData, config.Insecure = nil, true
	return config
}

// A server that lacks permissions serves as soon as it has them, without a restart.
func (c *certified) reportsMissingPermissions(t *testing.T) {
	roles := c.kube.RbacV1().ClusterRoles()
	role := framework.Must(roles.Get(t.Context(), framework.ServerRole, metav1.GetOptions{}))(t)
	rules := role.DeepCopy().Rules
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "apiservices")
	})
	role = framework.Must(roles.Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	server := c.servers[0]
	ready := server.Ready
	server.Ready = nil
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Ready = ready
	direct := framework.Must(kubernetes.NewForConfig(c.direct(t, server)))(t)
	for check, want := range map[string]string{
		"serving-certificate": `secrets "` + servingSecret + `" is forbidden`,
		"hub-permissions":     "apiservices.apiregistration.k8s.io",
	} {
		framework.Eventually(t, "/readyz/"+check+" names "+want, func(ctx context.Context) error {
			body, err := direct.RESTClient().Get().AbsPath("/readyz/" + check).DoRaw(ctx)
			if err == nil || !strings.Contains(string(body), want) {
				return fmt.Errorf("response = %q, error = %v", body, err)
			}
			return nil
		})
	}
	role.Rules = rules
	framework.Must(roles.Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	framework.Eventually(t, "the server is ready after it received its permissions", ready)
}

// Two servers serve through several renewals of the certificate and of the authority. Requests through the
// hub, and new connections with a caBundle that is a second old, never fail.
func (c *certified) renewsWithoutFailures(t *testing.T) {
	if err := c.servers[1].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.hub.RegisterAPIServices(t.Context(), c.port, nil, servedGroup); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var requests, handshakes atomic.Int64
	clients.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.ocm.RbacV1alpha1().ClusterPermissions("default").List(ctx, metav1.ListOptions{Limit: 1}); err != nil && ctx.Err() == nil {
				t.Errorf("request %d through the hub = %v, want no error", requests.Load(), err)
			}
			requests.Add(1)
			pause(ctx, 20*time.Millisecond)
		}
	})
	clients.Go(func() {
		for ctx.Err() == nil {
			bundle, err := c.bundle(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				continue
			}
			for range 10 {
				pause(ctx, 100*time.Millisecond)
				if err := handshake(ctx, c.port, bundle); err != nil && ctx.Err() == nil {
					t.Errorf("handshake %d = %v, want no error", handshakes.Load(), err)
				}
				handshakes.Add(1)
			}
		}
	})

	authorities, certificates := map[string]bool{}, map[string]bool{}
	err := await.Within(ctx, (renewals+2)*shortCAValidity, func(ctx context.Context) error {
		secret, err := c.kube.CoreV1().Secrets(localhub.HubNamespace).Get(ctx, servingSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		chain, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		if err != nil {
			return err
		}
		certificates[chain[0].SerialNumber.String()] = true
		authorities[chain[0].Issuer.CommonName] = true
		if len(authorities) <= renewals {
			return errors.New("too few renewals")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waiting for %d renewals of the authority: %v; authorities = %d, certificates = %d", renewals, err, len(authorities), len(certificates))
	}
	if len(certificates) < 2*renewals {
		t.Errorf("certificates = %d, want at least %d", len(certificates), 2*renewals)
	}
	if requests.Load() == 0 || handshakes.Load() == 0 {
		t.Errorf("requests through the hub = %d and handshakes = %d during the renewals, want some of both", requests.Load(), handshakes.Load())
	}
}

// balance returns a port that forwards connections to the servers in turn.
func (c *certified) balance(t *testing.T) int {
	t.Helper()
	listener := framework.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for i := 0; ; i++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(c.servers[i%len(c.servers)].Port))
			if err != nil {
				_ = from.Close()
				continue
			}
			forward := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = to.Close(), from.Close()
			}
			go forward(to, from)
			go forward(from, to)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// bundle returns the authorities that the hub trusts.
func (c *certified) bundle(ctx context.Context) ([]byte, error) {
	service, err := c.aggregator.ApiregistrationV1().APIServices().Get(ctx, apiService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return service.Spec.CABundle, nil
}

// handshake opens a connection as the hub does.
func handshake(ctx context.Context, port int, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("caBundle contains no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: servingHost}}
	connection, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	return connection.Close()
}

// trusted waits until both Secrets are valid, and the hub trusts both servers. It returns the Secret of the
// certificate.
func (c *certified) trusted(t *testing.T, after string) *corev1.Secret {
	t.Helper()
	var secret *corev1.Secret
	framework.Eventually(t, "the hub trusts both servers after "+after, func(ctx context.Context) (err error) {
		if secret, err = c.kube.CoreV1().Secrets(localhub.HubNamespace).Get(ctx, servingSecret, metav1.GetOptions{}); err != nil {
			return err
		}
		bundle, err := c.bundle(ctx)
		if err != nil {
			return err
		}
		ca, err := c.kube.CoreV1().Secrets(localhub.HubNamespace).Get(ctx, servingCA, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, data := range []map[string][]byte{secret.Data, ca.Data} {
			if _, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
				return err
			}
		}
		if string(bundle) != string(secret.Data["ca.crt"]) {
			return errors.New("caBundle differs from ca.crt")
		}
		for _, server := range c.servers {
			if err := handshake(ctx, server.Port, bundle); err != nil {
				return err
			}
		}
		_, err = c.ocm.RbacV1alpha1().ClusterPermissions("default").List(ctx, metav1.ListOptions{})
		return err
	})
	return secret
}

func (c *certified) repairs(t *testing.T) {
	secrets := c.kube.CoreV1().Secrets(localhub.HubNamespace)
	change := func(name string, change func(map[string][]byte)) {
		t.Helper()
		patch := framework.Must(secrets.Get(t.Context(), name, metav1.GetOptions{}))(t)
		change(patch.Data)
		// The server may update the Secret at the same time.
		patch.ResourceVersion = ""
		framework.Must(secrets.Update(t.Context(), patch, metav1.UpdateOptions{}))(t)
	}
	before := c.trusted(t, "the renewals")
	for _, name := range []string{servingSecret, servingCA} {
		if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.trusted(t, "the deletion of Secret "+name)
	}
	change(servingSecret, func(data map[string][]byte) { data[corev1.TLSPrivateKeyKey] = before.Data[corev1.TLSPrivateKeyKey] })
	c.trusted(t, "a change of the key")
	change(servingCA, func(data map[string][]byte) { data[corev1.TLSCertKey] = []byte("damaged") })
	c.trusted(t, "damage of the authority")
	if _, err := c.aggregator.ApiregistrationV1().APIServices().Patch(t.Context(), apiService, types.MergePatchType, []byte(`{"spec":{"caBundle":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.trusted(t, "a reset of caBundle")
	framework.Eventually(t, "an Event reports the repair", func(ctx context.Context) error {
		events, err := c.kube.EventsV1().Events(localhub.HubNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=ServingCertificateReplaced,regarding.name=" + servingSecret})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no Event with the reason ServingCertificateReplaced")
		}
		return err
	})
}

func (c *certified) servesSecretOfUser(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey(servingHost, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain := framework.Must(certutil.ParseCertsPEM(cert))(t)
	ca := framework.Must(certutil.EncodeCertificates(chain[len(chain)-1]))(t)
	secrets := c.kube.CoreV1().Secrets(localhub.HubNamespace)
	own := framework.Must(secrets.Get(t.Context(), servingSecret, metav1.GetOptions{}))(t)
	own.Annotations, own.ResourceVersion = nil, ""
	own.Data = map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, "ca.crt": ca}
	written := framework.Must(secrets.Update(t.Context(), own, metav1.UpdateOptions{}))(t)
	if served := c.trusted(t, "a user's change of the Secret"); served.ResourceVersion != written.ResourceVersion {
		t.Errorf("resourceVersion of a user's Secret = %s, want %s: the server changed it", served.ResourceVersion, written.ResourceVersion)
	}
	want := fmt.Sprintf(`hub_apiserver_serving_certificate_expiration_timestamp_seconds{certificate="serving"} %g`, float64(chain[0].NotAfter.Unix()))
	for _, server := range c.servers {
		direct := framework.Must(kubernetes.NewForConfig(c.direct(t, server)))(t)
		framework.Eventually(t, "the metrics of "+server.Name+" contain "+want, func(ctx context.Context) error {
			body, err := direct.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err == nil && !strings.Contains(string(body), want) {
				err = errors.New("they do not")
			}
			return err
		})
	}
}
