package membership

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	csrutil "k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// csrDriver authenticates to the hub with client certificates that the hub signs.
type csrDriver struct {
	clusterName string
	lifetime    time.Duration
	store       *store
	clock       clock.WithTicker
}

// deniedError is the error of a certificate request that was denied or failed.
type deniedError struct{ name, message string }

func (e *deniedError) Error() string {
	return fmt.Sprintf("the hub has denied CertificateSigningRequest %s: %s", e.name, e.message)
}

func (d *csrDriver) annotations() map[string]string { return nil }

func (d *csrDriver) commonName(known *identity) string {
	return clusterv1.AgentGroups(d.clusterName)[0] + ":" + known.get(keyAgentName)
}

func (d *csrDriver) usable(known *identity) error {
	certificate, err := certificateOf(known)
	if err != nil {
		return err
	}
	if name := d.commonName(known); certificate.Subject.CommonName != name {
		return fmt.Errorf("the certificate is for user %s, not %s", certificate.Subject.CommonName, name)
	}
	if !d.clock.Now().Before(certificate.NotAfter) {
		return fmt.Errorf("the certificate expired at %s", certificate.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// certificateOf returns the certificate of an identity, or an error if the certificate or its key
// is missing.
func certificateOf(known *identity) (*x509.Certificate, error) {
	if len(known.data[keyCertificate]) == 0 || len(known.data[keyPrivateKey]) == 0 {
		return nil, fmt.Errorf("there is no certificate yet")
	}
	pair, err := tls.X509KeyPair(known.data[keyCertificate], known.data[keyPrivateKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyCertificate, keyPrivateKey, err)
	}
	return pair.Leaf, nil
}

func (d *csrDriver) user() *clientcmdapi.AuthInfo {
	// client-go reads files again when they change. The paths are relative, so that the Secret can
	// be mounted in any directory.
	return &clientcmdapi.AuthInfo{ClientCertificate: keyCertificate, ClientKey: keyPrivateKey}
}

// obtain requests a certificate. After a restart, it continues with the pending request.
func (d *csrDriver) obtain(ctx context.Context, hub *hubClients, _ *clusterv1.ManagedCluster, known *identity, note func(string)) (func(*identity), error) {
	key := known.data[keyPendingKey]
	name, err := d.pending(ctx, hub.kube, known, key)
	if err != nil {
		return nil, err
	}
	if name == "" {
		if key, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
			return nil, fmt.Errorf("make a private key: %w", err)
		}
		if known, err = d.store.write(ctx, func(i *identity) { i.data[keyPendingKey] = key }); err != nil {
			return nil, err
		}
		if name, err = d.request(ctx, hub.kube, known, key); err != nil {
			return nil, err
		}
	}
	note(fmt.Sprintf("waiting for the hub to accept %s: CertificateSigningRequest %s is not signed yet", d.clusterName, name))
	issued, err := d.await(ctx, hub.kube, name)
	if err != nil {
		return nil, err
	}
	return func(i *identity) {
		i.data[keyCertificate], i.data[keyPrivateKey] = issued, key
		delete(i.data, keyPendingKey)
	}, nil
}

// pending returns the name of the request for a pending key. It creates the request if the hub has
// none. It returns an empty name if the key is no longer usable.
func (d *csrDriver) pending(ctx context.Context, hub kubernetes.Interface, known *identity, key []byte) (string, error) {
	_, name, err := d.named(key)
	if err != nil {
		return "", nil
	}
	getCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := hub.CertificatesV1().CertificateSigningRequests().Get(getCtx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return d.request(ctx, hub, known, key)
	case apierrors.IsForbidden(err):
		// An agent may read only the requests of its own user, and that user may have changed.
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read CertificateSigningRequest %s: %w", name, err)
	}
	if _, err := d.outcome(request); err != nil {
		return "", nil
	}
	return name, nil
}

// named returns the name of the request for a key. The name depends only on the key, because
// agents must find their requests after a crash, and may get requests by name but not list them.
// The name cannot be guessed without the key.
func (d *csrDriver) named(key []byte) (signer crypto.Signer, name string, err error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, "", err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, "", fmt.Errorf("a %T cannot sign", parsed)
	}
	encoded, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return signer, d.clusterName + "-" + hex.EncodeToString(sum[:8]), nil
}

func (d *csrDriver) request(ctx context.Context, hub kubernetes.Interface, known *identity, key []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	signer, name, err := d.named(key)
	if err != nil {
		return "", err
	}
	user := d.commonName(known)
	encoded, err := cert.MakeCSR(signer, &pkix.Name{
		CommonName: user, Organization: []string{clusterv1.AgentGroups(d.clusterName)[0], clusterv1.AllAgentsGroup},
	}, nil, nil)
	if err != nil {
		return "", fmt.Errorf("make a certificate request: %w", err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: d.clusterName},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: encoded, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
	if proof, err := rehoming.Prove(known.data[keyRehomingKey], encoded); err == nil {
		// A hub that has adopted the cluster approves the request because of it.
		request.Annotations = map[string]string{rehoming.ProofAnnotation: proof}
	}
	if d.lifetime > 0 {
		request.Spec.ExpirationSeconds = csrutil.DurationToExpirationSeconds(d.lifetime)
	}
	if _, err := hub.CertificatesV1().CertificateSigningRequests().Create(ctx, request, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create CertificateSigningRequest: %w", err)
	}
	klog.FromContext(ctx).Info("Requested a client certificate; unless the hub approves it by itself, an administrator does with clusteradm accept", "request", name, "user", user)
	return name, nil
}

// outcome returns the certificate of a request, or nil if it is not signed yet.
func (d *csrDriver) outcome(request *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	failed := slices.IndexFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
	})
	if failed >= 0 {
		condition := request.Status.Conditions[failed]
		return nil, &deniedError{name: request.Name, message: condition.Reason + ": " + condition.Message}
	}
	issued := bytes.TrimSpace(request.Status.Certificate)
	if len(issued) == 0 {
		return nil, nil
	}
	certificates, err := cert.ParseCertsPEM(issued)
	if err != nil {
		return nil, fmt.Errorf("certificate of CertificateSigningRequest %s: %w", request.Name, err)
	}
	if !d.clock.Now().Before(certificates[0].NotAfter) {
		return nil, fmt.Errorf("certificate of CertificateSigningRequest %s has expired", request.Name)
	}
	return append(issued, '\n'), nil
}

// readablePatience bounds the wait until the hub allows an agent to read its new request.
const readablePatience = 30 * time.Second

func (d *csrDriver) await(ctx context.Context, hub kubernetes.Interface, name string) (issued []byte, err error) {
	began := d.clock.Now()
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		request, err := hub.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if temporary(err) || apierrors.IsForbidden(err) && d.clock.Since(began) < readablePatience {
			klog.FromContext(ctx).V(2).Info("Failed to read the CertificateSigningRequest", "request", name, "err", err)
			return false, nil
		}
		if err == nil {
			issued, err = d.outcome(request)
		}
		return issued != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("CertificateSigningRequest %s: %w", name, err)
	}
	return issued, nil
}

const (
	// renewPause and maxRenewPause bound the delay after a failed renewal.
	renewPause    = 5 * time.Second
	maxRenewPause = 10 * time.Minute
	// renewTimeout bounds one attempt. The next attempt continues with the same request.
	renewTimeout = 15 * time.Minute
)

// renewAt returns the time of the renewal of a certificate: a random time between 70 % and 80 % of
// its lifetime, so that clusters that joined together do not renew together.
func renewAt(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life*7/10 + rand.N(life/10+1))
}

// renew requests new certificates before the current ones expire.
func (d *csrDriver) renew(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error) {
	logger := klog.FromContext(ctx)
	for {
		known := d.store.last()
		if known == nil {
			return
		}
		certificate, err := certificateOf(known)
		if err != nil {
			// A renewal requires a valid certificate.
			logger.Error(err, "Failed to renew the client certificate")
			return
		}
		certificateExpiry.Set(float64(certificate.NotAfter.Unix()))
		at := renewAt(certificate)
		logger.V(2).Info("The client certificate will be renewed", "at", at, "expires", certificate.NotAfter)
		if left := at.Sub(d.clock.Now()); left > 0 {
			select {
			case <-ctx.Done():
				return
			case <-d.clock.After(left):
			}
		}
		waits, denied := backoff(renewPause, maxRenewPause), backoff(deniedPause, maxDeniedPause)
		for {
			err := d.renewOnce(ctx, hub, renewed)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			delay := waits.Step()
			if errors.As(err, new(*deniedError)) {
				delay = denied.Step()
			}
			logger.Error(err, "Failed to renew the client certificate; retrying", "expires", certificate.NotAfter, "retryAfter", delay)
			if !reconcile.Pause(ctx, delay, nil) {
				return
			}
		}
	}
}

func (d *csrDriver) renewOnce(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error) error {
	tryCtx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	known := d.store.last()
	if known == nil {
		return errors.New("the identity of the cluster is unknown")
	}
	change, err := d.obtain(tryCtx, hub, nil, known, func(string) {})
	if err != nil {
		return err
	}
	if known, err = d.store.write(ctx, change); err != nil {
		return err
	}
	if err := renewed(ctx, known); err != nil {
		return fmt.Errorf("use the new certificate: %w", err)
	}
	klog.FromContext(ctx).Info("Renewed the client certificate")
	return nil
}
