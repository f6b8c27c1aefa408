package options

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
)

const minimumServingValidity = 5 * time.Second

// ServingCertificate are the flags of the serving certificate that the server creates and renews.
type ServingCertificate struct{ servingcert.Policy }

func newServingCertificate() ServingCertificate {
	return ServingCertificate{servingcert.Policy{Service: "hub-apiserver", Validity: 90 * 24 * time.Hour, CAValidity: 10 * 365 * 24 * time.Hour}}
}

func (s *ServingCertificate) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Secret, "serving-certificate-secret", s.Secret,
		"Secret in --namespace with the serving certificate. The server creates it, a Secret with the suffix -ca for its certificate authority, and renews both; it writes the authority into APIServices with the annotation "+servingcert.InjectAnnotation+". It serves a Secret that it did not create, but does not change it. If empty, the server uses --tls-cert-file, or a self-signed certificate.")
	fs.StringVar(&s.Service, "serving-certificate-service", s.Service,
		"Service in --namespace that the certificate of --serving-certificate-secret is valid for.")
	fs.DurationVar(&s.Validity, "serving-certificate-validity", s.Validity,
		"Lifetime of a certificate in --serving-certificate-secret. The server renews it after two thirds of its lifetime.")
	fs.DurationVar(&s.CAValidity, "serving-ca-validity", s.CAValidity,
		"Lifetime of the certificate authority of --serving-certificate-secret. The server renews it after two thirds of its lifetime. At least three times --serving-certificate-validity.")
}

func (s *ServingCertificate) validate(serving *genericoptions.SecureServingOptionsWithLoopback) []error {
	if s.Secret == "" {
		return nil
	}
	var errs problems
	pair := serving.ServerCert.CertKey
	errs.addIf(pair.CertFile != "" || pair.KeyFile != "",
		"--serving-certificate-secret must not be set together with --tls-cert-file or --tls-private-key-file: use one source of the serving certificate")
	secret, service := apivalidation.NameIsDNSSubdomain(s.Secret, false), validation.IsDNS1035Label(s.Service)
	errs.addIf(len(secret) > 0, "--serving-certificate-secret %q: %s", s.Secret, strings.Join(secret, "; "))
	errs.addIf(len(service) > 0, "--serving-certificate-service %q: %s", s.Service, strings.Join(service, "; "))
	errs.addIf(s.Validity < minimumServingValidity,
		"--serving-certificate-validity must be at least %s, not %s", minimumServingValidity, s.Validity)
	errs.addIf(s.CAValidity < 3*s.Validity,
		"--serving-ca-validity must be at least three times --serving-certificate-validity, %s, not %s", 3*s.Validity, s.CAValidity)
	return errs
}

// policy returns the policy of the serving certificate, or nil if the server does not manage it.
func (s *ServingCertificate) policy(namespace string) *servingcert.Policy {
	if s.Secret == "" {
		return nil
	}
	policy := s.Policy
	policy.Namespace = namespace
	return &policy
}
