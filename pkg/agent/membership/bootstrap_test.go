package membership

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

// fakeHub is a hub that signs or denies certificate requests when they are created.
type fakeHub struct {
	*hubClients
	kube *fake.Clientset
	ocm  *ocmfake.Clientset
	// denied is the reason to deny requests. If it is empty, requests are signed.
	denied string
	// lifetime is the lifetime of certificates.
	lifetime time.Duration
	requests []string
}

func newHub(t *testing.T, objects ...runtime.Object) *fakeHub {
	t.Helper()
	h := &fakeHub{kube: fake.NewClientset(), ocm: ocmfake.NewSimpleClientset(objects...), lifetime: time.Hour}
	h.hubClients = &hubClients{kube: h.kube, ocm: h.ocm}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.kube.PrependReactor("create", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		h.requests = append(h.requests, request.Name)
		if h.denied != "" {
			request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: h.denied}}
			return false, nil, nil
		}
		block, _ := pem.Decode(request.Spec.Request)
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return true, nil, err
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(len(h.requests))), Subject: parsed.Subject, NotBefore: time.Now(), NotAfter: time.Now().Add(h.lifetime)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, parsed.PublicKey, key)
		if err != nil {
			return true, nil, err
		}
		request.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		return false, nil, nil
	})
	return h
}

func managedCluster(change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "u"}}
	if change != nil {
		change(cluster)
	}
	return cluster
}

func TestManagedClusterIsCreatedOnce(t *testing.T) {
	joined := &identity{data: map[string][]byte{keyKubeconfig: []byte("x")}}
	for name, test := range map[string]struct {
		known   *identity
		cluster *clusterv1.ManagedCluster
		// fail is the error of the first get.
		fail error
		// created is true if the agent creates a ManagedCluster.
		created bool
		want    string
		missing bool
	}{
		"new":                {known: &identity{}, created: true},
		"created by others":  {known: &identity{}, cluster: managedCluster(nil)},
		"created meanwhile":  {known: &identity{}, cluster: managedCluster(nil), fail: apierrors.NewNotFound(clusterv1.Resource("managedclusters"), "cluster1")},
		"joined":             {known: joined, cluster: managedCluster(nil)},
		"joined and lost":    {known: joined, want: "the hub has no ManagedCluster cluster1", missing: true},
		"not served":         {known: joined, fail: apierrors.NewGenericServerResponse(404, "get", clusterv1.Resource("managedclusters"), "", "404 page not found", 0, true), want: "ManagedCluster cluster1"},
		"forbidden":          {known: &identity{}, fail: apierrors.NewForbidden(clusterv1.Resource("managedclusters"), "cluster1", nil), want: "forbidden"},
		"is being deleted":   {known: &identity{}, cluster: managedCluster(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = new(metav1.Now()) }), want: "is being deleted"},
		"joined and deleted": {known: joined, cluster: managedCluster(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = new(metav1.Now()) }), want: "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{Endpoint: "https://managed", CA: func() ([]byte, error) { return []byte("ca"), nil }})
			hub := newHub(t)
			if test.cluster != nil {
				if err := hub.ocm.Tracker().Add(test.cluster); err != nil {
					t.Fatal(err)
				}
			}
			hub.ocm.PrependReactor("get", "managedclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
				err := test.fail
				test.fail = nil
				return err != nil, nil, err
			})
			got, err := r.ensureCluster(t.Context(), hub.hubClients, test.known)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("ensureCluster() = %v, want an error that contains %q", err, test.want)
			}
			if missing := errors.As(err, new(*missingError)); missing != test.missing {
				t.Errorf("ensureCluster() = %v, want missingError = %t", err, test.missing)
			}
			if created := got != nil && len(got.Spec.ManagedClusterClientConfigs) > 0; created != test.created {
				t.Fatalf("ensureCluster() created a ManagedCluster = %t, want %t", created, test.created)
			}
			if test.created {
				if own := got.Spec.ManagedClusterClientConfigs[0]; own.URL != "https://managed" || string(own.CABundle) != "ca" {
					t.Errorf("client config = %s with CA %s, want https://managed with CA ca", own.URL, own.CABundle)
				}
			}
		})
	}
}

// TestAgentNameIsStored checks that the name of the agent is stored before the hub receives it, and
// does not change.
func TestAgentNameIsStored(t *testing.T) {
	now := time.Now()
	certificate, key := issue(t, "system:open-cluster-management:cluster1:former", 1, now, now.Add(time.Hour))
	for name, test := range map[string]struct {
		secret map[string]string
		want   string
	}{
		"new":                 {nil, ""},
		"known":               {map[string]string{keyAgentName: "a"}, "a"},
		"from a certificate":  {map[string]string{keyCertificate: string(certificate), keyPrivateKey: string(key)}, "former"},
		"invalid certificate": {map[string]string{keyCertificate: "x"}, ""},
		"known, with a certificate of another agent": {map[string]string{keyAgentName: "a", keyCertificate: string(certificate)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{})
			s, client := newStore(identitySecret(test.secret, nil))
			r.store = s
			known, err := r.named(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			got := known.get(keyAgentName)
			if got == "" || test.want != "" && got != test.want || string(stored(t, client).Data[keyAgentName]) != got {
				t.Errorf("named() = %q and name in Secret = %q, want %q in both", got, stored(t, client).Data[keyAgentName], test.want)
			}
			if again, err := r.named(t.Context(), false); err != nil || again.get(keyAgentName) != got {
				t.Errorf("named() again = %q, %v, want %q", again.get(keyAgentName), err, got)
			}
		})
	}
	// After the hub has lost the cluster, the user deletes the Secret to register the cluster
	// again.
	r := newRegistrar(t, Config{})
	if _, err := r.named(t.Context(), true); !errors.Is(err, errSecretDeleted) {
		t.Errorf("named() without a Secret = %v, want errSecretDeleted", err)
	}
}

// TestCertificateIsRequested checks that a restarted agent continues with its pending request, and
// requests another certificate only if the request is not usable.
func TestCertificateIsRequested(t *testing.T) {
	for name, test := range map[string]struct {
		// first changes the request of the first call. Then the agent restarts.
		first    func(*certificatesv1.CertificateSigningRequest)
		denied   string
		requests int
		want     string
	}{
		"signed immediately": {requests: 1},
		"signed during the restart": {
			first: func(*certificatesv1.CertificateSigningRequest) {}, requests: 1,
		},
		"denied before the restart": {
			first: func(r *certificatesv1.CertificateSigningRequest) {
				r.Status.Certificate = nil
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
			}, requests: 2,
		},
		"failed before the restart": {
			first: func(r *certificatesv1.CertificateSigningRequest) {
				r.Status.Certificate = nil
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}}
			}, requests: 2,
		},
		"malformed certificate": {
			first: func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, requests: 2,
		},
		"denied": {denied: "NoThanks", requests: 1, want: "NoThanks"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{CertificateLifetime: 30 * time.Minute})
			d := r.driver.(*csrDriver)
			hub := newHub(t)
			hub.denied = test.denied
			known, err := r.named(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			var waiting string
			if test.first != nil {
				if _, err := d.obtain(t.Context(), hub.hubClients, nil, known, func(string) {}); err != nil {
					t.Fatal(err)
				}
				requests := hub.kube.CertificatesV1().CertificateSigningRequests()
				request, err := requests.Get(t.Context(), hub.requests[0], metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				test.first(request)
				if _, err := requests.UpdateStatus(t.Context(), request, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				known = d.store.last()
			}
			change, err := d.obtain(t.Context(), hub.hubClients, nil, known, func(message string) { waiting = message })
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("obtain() = %v, want an error that contains %q", err, test.want)
			}
			if len(hub.requests) != test.requests {
				t.Errorf("requests = %v, want %d requests", hub.requests, test.requests)
			}
			if last := hub.requests[len(hub.requests)-1]; !strings.Contains(waiting, last) {
				t.Errorf("the registrar waits for %q, want request %s", waiting, last)
			}
			if test.want != "" {
				if refusal := (*deniedError)(nil); !errors.As(err, &refusal) {
					t.Errorf("obtain() = %v, want a deniedError", err)
				}
				return
			}
			change(known)
			if err := d.usable(known); err != nil {
				t.Errorf("usable() = %v, want nil", err)
			}
			if _, pending := known.data[keyPendingKey]; pending {
				t.Error("the identity has a pending key, want none")
			}
			request, err := hub.kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), hub.requests[0], metav1.GetOptions{})
			if err != nil || *request.Spec.ExpirationSeconds != 1800 || request.Labels[clusterv1.ClusterNameLabel] != "cluster1" {
				t.Errorf("request = %+v, %v, want 1800 seconds and the label of the cluster", request, err)
			}
		})
	}
}

// TestBootstrapIsRepeated checks that a failed bootstrap is repeated with increasing delays. The
// test uses the clock of synctest, and the bootstrap kubeconfig names no server.
func TestBootstrapIsRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	r := newRegistrar(t, Config{BootstrapKubeconfig: file})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if _, err := r.register(ctx, false, ", because the certificate expired"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("register() = %v, want DeadlineExceeded of ctx", err)
		}
	})
	// The agent has deleted the Secret of the bootstrap kubeconfig.
	for _, want := range []string{"cluster1 is not registered, because the certificate expired: --bootstrap-kubeconfig: ", "; run clusteradm join again with a new token"} {
		if got := r.Waiting(); !strings.Contains(got, want) {
			t.Errorf("Waiting() = %q, want %q in it", got, want)
		}
	}
	// Waiting does not change the Secret of another cluster, so the error is final.
	kubeconfig, err := (&endpoint{server: "https://127.0.0.1:1"}).kubeconfig(&clientcmdapi.AuthInfo{Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	r.store, _ = newStore(identitySecret(map[string]string{keyClusterName: "cluster2"}, nil))
	_, err = r.register(t.Context(), false, "")
	if foreign := (*foreignError)(nil); !errors.As(err, &foreign) {
		t.Errorf("register() with the Secret of another cluster = %v, want a foreignError", err)
	}
}

// TestFormerCredentialsAreTriedMeanwhile checks that the delay after a denial does not delay the return to the previous
// credentials. The test uses the clock of synctest.
func TestFormerCredentialsAreTriedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		valid := &identity{}
		for after, want := range map[time.Duration]*identity{0: valid, 5 * time.Minute: valid, time.Hour: nil} {
			began := time.Now()
			got, err := awaitFormer(t.Context(), maxDeniedPause, func(context.Context) *identity {
				if time.Since(began) < after {
					return nil
				}
				return valid
			})
			if took := time.Since(began); got != want || err != nil || want != nil && took > after+formerPeriod || want == nil && took != maxDeniedPause {
				t.Errorf("awaitFormer() with credentials that are valid after %s = %p, %v after %s, want %p", after, got, err, took, want)
			}
		}
	})
}

func TestFilesMirrorTheSecret(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	full := &identity{data: map[string][]byte{keyClusterName: []byte("cluster1"), keyAgentName: []byte("a"), keyCertificate: []byte("c"), keyPrivateKey: []byte("k"), keyKubeconfig: []byte("y"), keyPendingKey: []byte("p")}}
	without := full.clone()
	delete(without.data, keyCertificate)
	for _, known := range []*identity{full, full, without} {
		if err := mirror(dir, known); err != nil {
			t.Fatal(err)
		}
		for key, value := range known.data {
			content, err := os.ReadFile(filepath.Join(dir, key))
			if mirrored := slices.Contains(fileKeys, key); mirrored != (err == nil) || mirrored && !bytes.Equal(content, value) {
				t.Errorf("file %s = %q, %v, want content %q = %t", key, content, err, value, mirrored)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, keyCertificate)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat(file of a removed key) = %v, want ErrNotExist", err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, keyPrivateKey): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v, want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

// TestNewBootstrapTokenActsAtOnce checks that an agent whose token the hub rejects sends a new one within seconds, although its
// delays have grown. The kubelet has not updated the file of a Secret by then. The test uses the clock of synctest.
func TestNewBootstrapTokenActsAtOnce(t *testing.T) {
	for name, secret := range map[string]string{"Secret": "boot", "file": ""} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Pointer[string]
				r := newRegistrar(t, Config{BootstrapKubeconfig: file, BootstrapSecret: secret, Tune: func(config *rest.Config) {
					config.WrapTransport = func(http.RoundTripper) http.RoundTripper {
						return roundTripper(func(request *http.Request) *http.Response {
							sent.Store(new(request.Header.Get("Authorization")))
							return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: request}
						})
					}
				}})
				old, replaced := kubeconfigOf(t, "https://hub", "old"), kubeconfigOf(t, "https://hub", "new")
				err := os.WriteFile(file, old, 0o600)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _, _ = r.register(ctx, false, "") })
				time.Sleep(10 * time.Minute)
				if secret == "" {
					err = errors.Join(err, os.WriteFile(file, replaced, 0o600))
				} else {
					_, failed := r.store.secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{"kubeconfig": replaced}}, metav1.CreateOptions{})
					err = errors.Join(err, failed)
				}
				if before := *sent.Load(); err != nil || before != "Bearer old" {
					t.Errorf("the agent sent %q, want the old token; %v", before, err)
				}
				time.Sleep(3 * time.Second)
				if after := *sent.Load(); after != "Bearer new" {
					t.Errorf("the agent sent %q 3 seconds after the change of the bootstrap kubeconfig, want the new token", after)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

type roundTripper func(*http.Request) *http.Response

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return r(request), nil
}
