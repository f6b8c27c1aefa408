package clusteradm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	hubNamespace  = "open-cluster-management-hub"
	serverName    = "hub-apiserver"
	servingSecret = "hub-apiserver-serving"
	caKey         = "ca.crt"

	// servingLifetime is the lifetime of the certificates that init creates. They are not
	// renewed, so init warns if they expire within servingWarning.
	servingLifetime = 10 * 365 * 24 * time.Hour
	servingWarning  = 90 * 24 * time.Hour
)

// newServingSecret creates a certificate authority and a serving certificate. It discards
// the key of the authority, which never signs another certificate.
func newServingSecret(now time.Time) (*corev1.Secret, error) {
	caPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: serverName + "-ca"},
		// Allow for clock skew.
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(servingLifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caPrivate.Public(), caPrivate)
	if err != nil {
		return nil, err
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	service := serverName + "." + hubNamespace + ".svc"
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: service},
		DNSNames:  []string{service, service + ".cluster.local"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, private.Public(), caPrivate)
	if err != nil {
		return nil, err
	}
	if leaf, err = x509.ParseCertificate(leafDER); err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, err
	}
	bundle, err := certutil.EncodeCertificates(ca)
	if err != nil {
		return nil, err
	}
	certPEM, err := certutil.EncodeCertificates(leaf)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: servingSecret},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM, caKey: bundle},
	}, nil
}

// ensureServingSecret returns the Secret with the serving certificate, and creates it if
// it does not exist. It never changes an existing one.
func ensureServingSecret(ctx context.Context, kube kubernetes.Interface, now time.Time) (secret *corev1.Secret, created bool, err error) {
	secrets := kube.CoreV1().Secrets(hubNamespace)
	secret, err = secrets.Get(ctx, servingSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if secret, err = newServingSecret(now); err != nil {
			return nil, false, err
		}
		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager}); err == nil {
			return secret, true, nil
		}
		if apierrors.IsAlreadyExists(err) {
			secret, err = secrets.Get(ctx, servingSecret, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("the Secret %s in %s: %w", servingSecret, hubNamespace, err)
	}
	return secret, false, nil
}

// checkServingSecret returns the certificate authority in the Secret, and a warning if the
// certificate expires soon.
func checkServingSecret(secret *corev1.Secret, now time.Time) (bundle []byte, warning string, err error) {
	bundle = secret.Data[caKey]
	if _, err := certutil.ParseCertsPEM(bundle); err != nil {
		return nil, "", fmt.Errorf("the Secret %s in %s: %s must contain the certificate authority of %s for the APIServices: %w", servingSecret, hubNamespace, caKey, corev1.TLSCertKey, err)
	}
	certificates, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return nil, "", fmt.Errorf("the Secret %s in %s: %s: %w", servingSecret, hubNamespace, corev1.TLSCertKey, err)
	}
	if len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
		return nil, "", errors.New("the Secret " + servingSecret + " in " + hubNamespace + " has no " + corev1.TLSPrivateKeyKey)
	}
	if end := certificates[0].NotAfter; end.Sub(now) < servingWarning {
		warning = fmt.Sprintf("the server's certificate expires at %s. To renew it, delete the Secret %s in %s and run clusteradm init again.", end.Format(time.RFC3339), servingSecret, hubNamespace)
	}
	return bundle, warning, nil
}
