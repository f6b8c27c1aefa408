package servingcert

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
)

const day = 24 * time.Hour

var (
	policy = Policy{Namespace: "hub", Secret: "serving", Service: "server", Validity: 90 * day, CAValidity: 3650 * day}
	start  = time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
)

// secrets are the two Secrets of a hub.
type secrets struct {
	serving, ca *corev1.Secret
	// unwritable is true while the APIServices cannot be written.
	unwritable bool
}

// settle applies decisions until there is nothing to write. It returns the last decision and the reasons
// of the writes.
func (s *secrets) settle(t *testing.T, now time.Time) (Decision, []string) {
	t.Helper()
	var reasons []string
	for range maxDecisions {
		decision, err := policy.Decide(s.serving, s.ca, now)
		if err != nil {
			t.Fatalf("Decide() at %s = %v, want no error", now, err)
		}
		if decision.Write == nil && (decision.Trusted == nil || s.unwritable) {
			return decision, reasons
		}
		if decision.Write == nil {
			s.ca = decision.Trusted
			continue
		}
		reasons = append(reasons, decision.Write.Name+": "+decision.Reason)
		if decision.Write.Name == policy.Secret {
			s.serving = decision.Write
		} else {
			s.ca = decision.Write
		}
	}
	t.Fatalf("writes at %s = %q, want at most %d", now, reasons, maxDecisions)
	return Decision{}, nil
}

func (s *secrets) bundle() []byte { return s.serving.Data[BundleKey] }

// verifies reports whether a client that trusts the bundle accepts the serving certificate.
func (s *secrets) verifies(bundle []byte, now time.Time) error {
	chain, err := certutil.ParseCertsPEM(s.serving.Data[corev1.TLSCertKey])
	if err != nil {
		return err
	}
	options := x509.VerifyOptions{DNSName: "server.hub.svc", CurrentTime: now, Roots: x509.NewCertPool()}
	options.Roots.AppendCertsFromPEM(bundle)
	_, err = chain[0].Verify(options)
	return err
}

func (s *secrets) clone() *secrets {
	return &secrets{serving: s.serving.DeepCopy(), ca: s.ca.DeepCopy()}
}

// Through 30 years, each certificate that a replica serves is valid for each client: also for a client that
// has not read the last change of the bundle, and for a replica that has not read the last certificate.
func TestLifeOfCertificates(t *testing.T) {
	s := &secrets{}
	if _, reasons := s.settle(t, start); len(reasons) != 2 {
		t.Fatalf("writes without Secrets = %q, want one for each Secret", reasons)
	}
	leaves, authorities := map[string]bool{}, map[string]bool{}
	before := s.clone()
	for now := start; now.Before(start.Add(30 * 365 * day)); {
		decision, reasons := s.settle(t, now)
		if len(reasons) == 0 && now != start {
			t.Fatalf("Decide() at %s wrote nothing, want a write at the time of Next", now)
		}
		for name, check := range map[string]error{
			"certificate with the bundle":               s.verifies(s.bundle(), now),
			"certificate with the previous bundle":      s.verifies(before.bundle(), now),
			"previous certificate with the bundle":      before.verifies(s.bundle(), now),
			"certificate with the bundle until Next":    s.verifies(s.bundle(), decision.Next),
			"certificate with the bundle a month later": s.verifies(s.bundle(), decision.Next.Add(25*day)),
		} {
			if check != nil {
				t.Fatalf("Verify(%s) at %s after %q = %v, want nil", name, now, reasons, check)
			}
		}
		if trusted := len(must(certutil.ParseCertsPEM(s.bundle()))); trusted > 2 {
			t.Fatalf("authorities in the bundle at %s = %d, want at most 2", now, trusted)
		}
		leaves[string(s.serving.Data[corev1.TLSCertKey])] = true
		authorities[string(s.ca.Data[corev1.TLSCertKey])] = true
		before, now = s.clone(), decision.Next
	}
	if len(leaves) < 30*365/90 || len(authorities) != 5 {
		t.Errorf("certificates and authorities of 30 years = %d and %d, want more than %d and 5", len(leaves), len(authorities), 30*365/90)
	}
}

func TestBundlePrecedesCertificate(t *testing.T) {
	s := &secrets{}
	s.settle(t, start)
	renewed := renewal(authorityOf(s))
	s.serving = nil
	s.settle(t, renewed.Add(-time.Minute)) // a certificate that is not due itself
	leaf := string(s.serving.Data[corev1.TLSCertKey])
	s.unwritable = true
	s.settle(t, renewed)
	if got := len(must(certutil.ParseCertsPEM(s.bundle()))); got != 2 {
		t.Fatalf("authorities in the bundle after the renewal = %d, want the previous and the new one", got)
	}
	s.settle(t, renewed.Add(2*day))
	s.unwritable = false
	written := renewed.Add(3 * day)
	s.settle(t, written)
	s.settle(t, written.Add(59*time.Minute))
	if string(s.serving.Data[corev1.TLSCertKey]) != leaf {
		t.Error("the serving certificate changed before the APIServices had the new authority for an hour, want the previous one")
	}
	s.settle(t, written.Add(time.Hour+time.Second))
	if string(s.serving.Data[corev1.TLSCertKey]) == leaf {
		t.Error("the serving certificate is that of the previous authority after the bundle has settled, want a new one")
	}
}

func TestRepair(t *testing.T) {
	other := &secrets{}
	other.settle(t, start)
	wrongNames := policy
	wrongNames.Service = "other"
	named, err := wrongNames.Decide(nil, other.ca, start)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		damage func(*secrets)
		after  time.Duration
		want   []string // reasons
		// keeps is true if clients with the previous bundle must accept the result.
		keeps bool
	}{
		"deleted certificate": {func(s *secrets) { s.serving = nil }, 0, []string{"serving: the Secret does not exist"}, true},
		"deleted authority":   {func(s *secrets) { s.ca = nil }, 0, []string{"serving-ca: the Secret does not exist", "serving: the certificate authorities changed"}, true},
		"bad PEM":             {func(s *secrets) { s.serving.Data[corev1.TLSCertKey] = []byte("none") }, 0, []string{"serving: tls: failed to find any PEM"}, true},
		"key of another": {func(s *secrets) {
			s.serving.Data[corev1.TLSPrivateKeyKey] = other.serving.Data[corev1.TLSPrivateKeyKey]
		}, 0, []string{"serving: tls: private key does not match"}, true},
		"certificate of another":  {func(s *secrets) { s.serving.Data = other.serving.DeepCopy().Data }, 0, []string{"serving: x509: certificate signed by unknown authority"}, true},
		"wrong names":             {func(s *secrets) { s.ca = other.ca.DeepCopy(); s.serving.Data = named.Write.Data }, 0, []string{"serving: x509: certificate is valid for other.hub.svc"}, false},
		"empty bundle":            {func(s *secrets) { delete(s.serving.Data, BundleKey) }, 0, []string{"serving: the certificate authorities changed"}, true},
		"bundle of the authority": {func(s *secrets) { s.ca.Data[BundleKey] = []byte("x") }, 0, []string{"serving-ca: the bundle"}, true},
		"key of the authority":    {func(s *secrets) { s.ca.Data[corev1.TLSPrivateKeyKey] = nil }, 0, []string{"serving-ca: tls: failed", "serving: the certificate authorities changed"}, true},
		"expired":                 {func(*secrets) {}, 91 * day, []string{"serving: x509: certificate has expired"}, true},
		"both expired":            {func(*secrets) {}, 3651 * day, []string{"serving-ca: the certificate expired", "serving: x509: certificate"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &secrets{}
			s.settle(t, start)
			before := s.bundle()
			test.damage(s)
			now := start.Add(time.Hour + test.after)
			_, reasons := s.settle(t, now)
			if len(reasons) != len(test.want) {
				t.Fatalf("writes = %q, want %q", reasons, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(reasons[i], want) {
					t.Errorf("write %d = %q, want %q", i, reasons[i], want)
				}
			}
			if err := s.verifies(s.bundle(), now); err != nil {
				t.Errorf("Verify(repaired certificate) = %v, want nil", err)
			}
			if err := s.verifies(before, now); test.keeps && err != nil {
				t.Errorf("Verify(repaired certificate, previous bundle) = %v, want nil", err)
			}
		})
	}
}

func TestSecretsOfOthers(t *testing.T) {
	s := &secrets{}
	s.settle(t, start)
	s.serving.Annotations = nil
	if decision, err := policy.Decide(s.serving, nil, start.Add(100*day)); err != nil || decision.Write != nil || !decision.Next.IsZero() {
		t.Errorf("Decide(expired Secret without annotation) = %+v, %v, want no write", decision, err)
	}
	s.ca.Annotations = nil
	if decision, err := policy.Decide(nil, s.ca, start); err == nil || !strings.Contains(err.Error(), "serving-ca") {
		t.Errorf("Decide(authority without annotation) = %+v, %v, want an error that names the Secret", decision, err)
	}
}

func authorityOf(s *secrets) *x509.Certificate {
	return must(certutil.ParseCertsPEM(s.ca.Data[corev1.TLSCertKey]))[0]
}

func must(certs []*x509.Certificate, err error) []*x509.Certificate {
	if err != nil {
		panic(err)
	}
	return certs
}
