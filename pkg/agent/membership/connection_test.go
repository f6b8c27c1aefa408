package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/keyutil"
	testingclock "k8s.io/utils/clock/testing"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// issue returns a certificate for a user with the given serial number, and its key.
func issue(t *testing.T, user string, serial int64, from, to time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: user}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

func newRegistrar(t *testing.T, config Config) *Registrar {
	t.Helper()
	config.ClusterName, config.Namespace, config.SecretName = "cluster1", "agents", "hub"
	config.Dir = filepath.Join(t.TempDir(), "files")
	config.Managed = fake.NewClientset()
	if config.Driver == "" {
		config.Driver = registerv1alpha1.DriverCSR
	}
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRenewedCertificateIsUsedByOpenClients checks the certificate of requests before and after a
// renewal. The hub returns the certificate of each request.
func TestRenewedCertificateIsUsedByOpenClients(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%d from %s", r.TLS.PeerCertificates[0].SerialNumber, r.RemoteAddr)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()

	r := newRegistrar(t, Config{})
	hub := &endpoint{server: server.URL, ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	now := time.Now()
	save := func(serial int64) *identity {
		t.Helper()
		certificate, key := issue(t, "system:open-cluster-management:cluster1:a", serial, now, now.Add(time.Hour))
		known, err := r.save(t.Context(), hub, func(i *identity) { i.data[keyCertificate], i.data[keyPrivateKey] = certificate, key })
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	save(1)
	conn, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	ask := func() (serial int, address string) {
		t.Helper()
		body, err := conn.hub.kube.CoreV1().RESTClient().Get().AbsPath("/").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(body), "%d from %s", &serial, &address); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		return serial, address
	}
	serial, before := ask()
	if _, again := ask(); serial != 1 || again != before {
		t.Fatalf("requests used certificate %d over connections %s and %s, want certificate 1 over one connection", serial, before, again)
	}
	if err := r.renewed(t.Context(), conn, save(2)); err != nil {
		t.Fatal(err)
	}
	if serial, after := ask(); serial != 2 || after == before {
		t.Errorf("request after the renewal used certificate %d over connection %s, before over %s; want certificate 2 over another connection", serial, after, before)
	}
}

func TestRenewalIsSpreadOverATenthOfTheLife(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	certificate := &x509.Certificate{NotBefore: from, NotAfter: from.Add(1000 * time.Hour)}
	first, last := certificate.NotAfter, certificate.NotBefore
	for range 2000 {
		at := renewAt(certificate)
		if at.Before(from.Add(700*time.Hour)) || at.After(from.Add(800*time.Hour+time.Second)) {
			t.Fatalf("renewAt() = %s after the start of 1000 hours, want 700h to 800h", at.Sub(from))
		}
		if at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if last.Sub(first) < 50*time.Hour {
		t.Errorf("2000 renewals are spread over %s, want at least 50h", last.Sub(first))
	}
}

func TestUsableCertificates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newRegistrar(t, Config{Clock: testingclock.NewFakeClock(now)})
	const user = "system:open-cluster-management:cluster1:a"
	good, goodKey := issue(t, user, 1, now.Add(-time.Hour), now.Add(time.Hour))
	old, oldKey := issue(t, user, 2, now.Add(-2*time.Hour), now.Add(-time.Hour))
	other, otherKey := issue(t, "system:open-cluster-management:cluster2:a", 3, now.Add(-time.Hour), now.Add(time.Hour))
	for name, test := range map[string]struct {
		certificate, key []byte
		usable           bool
	}{
		"good": {good, goodKey, true}, "none": {nil, nil, false}, "expired": {old, oldKey, false}, "of another cluster": {other, otherKey, false},
		"with another key": {good, oldKey, false}, "no PEM": {[]byte("x"), goodKey, false}, "no key": {good, []byte("x"), false},
	} {
		known := &identity{data: map[string][]byte{keyAgentName: []byte("a"), keyCertificate: test.certificate, keyPrivateKey: test.key}}
		if err := r.driver.usable(known); (err == nil) != test.usable {
			t.Errorf("%s: usable() = %v, want usable = %t", name, err, test.usable)
		}
	}
}

func TestSecretOfAnotherClusterIsNotWritten(t *testing.T) {
	r := newRegistrar(t, Config{})
	secrets := r.config.Managed.CoreV1().Secrets("agents")
	if _, err := r.store.write(t.Context(), func(i *identity) { i.set(keyAgentName, "a") }); err != nil {
		t.Fatal(err)
	}
	r.store.clusterName = "cluster2"
	if _, err := r.store.read(t.Context()); err == nil {
		t.Error("read() of the Secret of cluster1 for cluster2 = nil, want an error")
	}
	if _, err := r.store.write(t.Context(), func(i *identity) { i.set(keyAgentName, "b") }); err == nil {
		t.Error("write() to the Secret of cluster1 for cluster2 = nil, want an error")
	}
	secret, err := secrets.Get(t.Context(), "hub", metav1.GetOptions{})
	if err != nil || string(secret.Data[keyAgentName]) != "a" || string(secret.Data[keyClusterName]) != "cluster1" {
		t.Errorf("Secret = %v, %v, want agent a of cluster1", secret.Data, err)
	}
}
