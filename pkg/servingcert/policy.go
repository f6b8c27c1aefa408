// Package servingcert keeps the serving certificate of the server and its certificate authority in
// Secrets of the hub, and renews both. Policy decides, without clients; Controller applies the
// decisions and writes the authority into APIServices.
package servingcert

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// ManagedAnnotation marks the Secrets that the server created, and may replace.
	ManagedAnnotation = "open-cluster-management.io/managed-serving-certificate"
	// BundleKey is the key of a Secret that contains certificate authorities in PEM. The Secret of
	// the serving certificate contains a copy of those in the Secret of the authority.
	BundleKey = "ca.crt"

	// TrustedAnnotation of the Secret of the authority is the time since which all APIServices contain its bundle.
	TrustedAnnotation = "open-cluster-management.io/serving-ca-trusted-since"

	caSuffix = "-ca"
	// maxSkew is the difference between clocks that certificates allow for.
	maxSkew = time.Hour
	// maxSettling is the time after which every kube-apiserver has read the caBundle of an
	// APIService. It reads them with a watch, which takes seconds.
	maxSettling = time.Hour
)

// Policy decides which certificates exist.
type Policy struct {
	// Namespace contains the Secrets and the Service.
	Namespace string
	// Secret is the name of the Secret of the serving certificate. The Secret of its certificate
	// authority has the suffix -ca.
	Secret string
	// Service is the name of the Service that the certificate is valid for.
	Service string
	// Validity and CAValidity are the lifetimes of new certificates. A certificate is renewed after
	// two thirds of its lifetime.
	Validity, CAValidity time.Duration
}

// CASecret returns the name of the Secret of the certificate authority.
func (p Policy) CASecret() string { return p.Secret + caSuffix }

// DNSNames returns the names that the serving certificate is valid for.
func (p Policy) DNSNames() []string {
	host := p.Service + "." + p.Namespace + ".svc"
	return []string{host, host + ".cluster.local"}
}

// Decision is the result of Policy.Decide.
type Decision struct {
	// Write is the Secret to create or to update, or nil. Decide must be called again with the result.
	Write *corev1.Secret
	// Reason is the reason for Write. Repair is true if the replaced content was invalid.
	Reason string
	Repair bool
	// Next is the time of the next decision if Write is nil. It is zero if the server does not manage
	// the Secrets.
	Next time.Time
	// CAExpires is the end of the current authority.
	CAExpires time.Time
	// Trusted is the Secret to write once all APIServices contain the current authority. It is nil if they already did.
	Trusted *corev1.Secret
}

// Decide returns the next step to valid certificates. Secrets that do not exist are nil. It returns an
// error if it must not write a Secret that somebody else created.
//
// A new authority is added to the bundle at once. It signs the serving certificate only after all APIServices have contained
// it for a while, or if there is no valid certificate.
func (p Policy) Decide(serving, ca *corev1.Secret, now time.Time) (Decision, error) {
	if serving != nil && !managed(serving) {
		return Decision{}, nil
	}
	if ca != nil && !managed(ca) {
		return Decision{}, fmt.Errorf("the Secret %s in %s has no annotation %s, so it is not a certificate authority of this server: delete it, or use another --serving-certificate-secret", ca.Name, p.Namespace, ManagedAnnotation)
	}
	current, problem := readAuthority(ca, now)
	if problem != nil {
		return p.newAuthority(serving, ca, now, problem, ca != nil)
	}
	if !now.Before(renewal(current.cert)) {
		return p.newAuthority(serving, ca, now, errors.New("two thirds of its lifetime are over"), false)
	}
	if bundle, err := certutil.EncodeCertificates(current.bundle...); err != nil {
		return Decision{}, err
	} else if !bytes.Equal(bundle, ca.Data[BundleKey]) {
		return p.write(ca, p.CASecret(), bundleOnly(ca, bundle), "the bundle contains expired or invalid authorities, or not the current one", true)
	}
	return p.decideServing(current, serving, ca, now)
}

// decideServing is Decide for the serving certificate of a valid authority.
func (p Policy) decideServing(current *authority, serving, ca *corev1.Secret, now time.Time) (Decision, error) {
	leaf, problem := p.readServing(serving, current.bundle, now)
	if problem != nil {
		return p.newServing(current, serving, ca, now, problem, serving != nil)
	}
	signed := leaf.CheckSignatureFrom(current.cert) == nil
	settled := leaf.NotAfter // if the authority is not trusted yet
	trusted, untrusted := time.Parse(time.RFC3339, ca.Annotations[TrustedAnnotation])
	if untrusted == nil {
		settled = trusted.Add(settling(current.cert))
	}
	due := renewal(leaf)
	if !signed {
		due = settled
	}
	switch {
	case !now.Before(due) && !now.Before(settled) && signed && len(current.bundle) > 1:
		// The earlier authorities were last needed by the certificate before this one.
		bundle, err := certutil.EncodeCertificates(current.cert)
		if err != nil {
			return Decision{}, err
		}
		return p.write(ca, p.CASecret(), bundleOnly(ca, bundle), "no serving certificate needs the previous authority", false)
	case !now.Before(due):
		reason := errors.New("two thirds of its lifetime are over")
		if !signed {
			reason = errors.New("there is a new certificate authority")
		}
		return p.newServing(current, serving, ca, now, reason, false)
	case !bytes.Equal(serving.Data[BundleKey], ca.Data[BundleKey]):
		return p.write(serving, p.Secret, bundleOnly(serving, ca.Data[BundleKey]), "the certificate authorities changed", false)
	}
	next := slices.MinFunc([]time.Time{renewal(current.cert), due, leaf.NotAfter}, time.Time.Compare)
	decision := Decision{Next: next, CAExpires: current.cert.NotAfter}
	if untrusted != nil {
		decision.Trusted = ca.DeepCopy()
		decision.Trusted.Annotations[TrustedAnnotation] = now.UTC().Format(time.RFC3339)
	}
	return decision, nil
}

func (p Policy) newAuthority(serving, ca *corev1.Secret, now time.Time, reason error, repair bool) (Decision, error) {
	created, err := issueAuthority(p.Service, now, p.CAValidity)
	if err != nil {
		return Decision{}, fmt.Errorf("creating a certificate authority: %w", err)
	}
	trusted := []*x509.Certificate{created.cert}
	for _, secret := range []*corev1.Secret{ca, serving} {
		if secret != nil {
			trusted = append(trusted, authorities(secret.Data[BundleKey], now)...)
		}
	}
	content, err := pair(created.cert, created.key, unique(trusted))
	if err != nil {
		return Decision{}, err
	}
	return p.write(ca, p.CASecret(), content, reason.Error(), repair)
}

func (p Policy) newServing(current *authority, serving, ca *corev1.Secret, now time.Time, reason error, repair bool) (Decision, error) {
	content, err := current.issueServing(p.DNSNames(), now, p.Validity)
	if err != nil {
		return Decision{}, fmt.Errorf("creating a serving certificate: %w", err)
	}
	content[BundleKey] = ca.Data[BundleKey]
	return p.write(serving, p.Secret, content, reason.Error(), repair)
}

// write returns the decision to write a Secret. An existing Secret keeps its metadata, but clients must read a new bundle.
func (p Policy) write(existing *corev1.Secret, name string, content map[string][]byte, reason string, repair bool) (Decision, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}, Type: corev1.SecretTypeTLS}
	if existing != nil {
		secret = existing.DeepCopy()
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[ManagedAnnotation] = "true"
	delete(secret.Annotations, TrustedAnnotation)
	secret.Data = content
	return Decision{Write: secret, Reason: reason, Repair: repair}, nil
}

func bundleOnly(secret *corev1.Secret, bundle []byte) map[string][]byte {
	content := maps.Clone(secret.Data)
	content[BundleKey] = bundle
	return content
}

func managed(secret *corev1.Secret) bool { return secret.Annotations[ManagedAnnotation] != "" }

// readServing returns the serving certificate of a Secret, or its problem.
func (p Policy) readServing(secret *corev1.Secret, trusted []*x509.Certificate, now time.Time) (*x509.Certificate, error) {
	if secret == nil {
		return nil, errors.New("the Secret does not exist")
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, cert := range trusted {
		roots.AddCert(cert)
	}
	// If the clock of this server is late, replicas must not replace the certificates of each other.
	if now.Before(pair.Leaf.NotBefore) {
		now = pair.Leaf.NotBefore
	}
	for _, name := range p.DNSNames() {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return nil, err
		}
	}
	return pair.Leaf, nil
}

// readAuthority returns the authority in a Secret, or its problem.
func readAuthority(secret *corev1.Secret, now time.Time) (*authority, error) {
	if secret == nil {
		return nil, errors.New("the Secret does not exist")
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", pair.PrivateKey)
	}
	cert := pair.Leaf
	switch {
	case !cert.IsCA || cert.CheckSignatureFrom(cert) != nil:
		return nil, errors.New("the certificate is not a self-signed certificate authority")
	case !now.Before(cert.NotAfter):
		return nil, fmt.Errorf("the certificate expired at %s", cert.NotAfter.Format(time.RFC3339))
	}
	bundle := append([]*x509.Certificate{cert}, authorities(secret.Data[BundleKey], now)...)
	return &authority{cert: cert, key: signer, bundle: unique(bundle)}, nil
}

// authorities returns the certificate authorities in PEM data that have not expired.
func authorities(data []byte, now time.Time) []*x509.Certificate {
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(certs, func(cert *x509.Certificate) bool { return !cert.IsCA || !now.Before(cert.NotAfter) })
}

func unique(certs []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, cert := range certs {
		if !slices.ContainsFunc(out, cert.Equal) {
			out = append(out, cert)
		}
	}
	return out
}

// renewal returns the time after two thirds of the lifetime of a certificate.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// settling returns the time in which every kube-apiserver reads the caBundle of an APIService.
func settling(ca *x509.Certificate) time.Duration {
	return min(maxSettling, ca.NotAfter.Sub(ca.NotBefore)/12)
}
