package options

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
)

const (
	defaultServingService    = "hub-apiserver"
	defaultServingValidity   = 90 * 24 * time.Hour
	defaultServingCAValidity = 10 * 365 * 24 * time.Hour
	minimumServingValidity   = 5 * time.Second
)

// ServingCertificate are the flags of the serving certificate that the server creates and renews.
type ServingCertificate struct {
	Secret, Service      string
	Validity, CAValidity time.Duration
}

func newServingCertificate() ServingCertificate {
	return ServingCertificate{Service: defaultServingService, Validity: defaultServingValidity, CAValidity: defaultServingCAValidity}
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
	if pair := serving.ServerCert.CertKey; pair.CertFile != "" || pair.KeyFile != "" {
		errs = append(errs, fmt.Errorf("--serving-certificate-secret must not be set together with --tls-cert-file or --tls-private-key-file: use one source of the serving certificate"))
	}
	if problems := apivalidation.NameIsDNSSubdomain(s.Secret, false); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--serving-certificate-secret %q: %s", s.Secret, strings.Join(problems, "; ")))
	}
	if problems := validation.IsDNS1035Label(s.Service); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--serving-certificate-service %q: %s", s.Service, strings.Join(problems, "; ")))
	}
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
	return &servingcert.Policy{Namespace: namespace, Secret: s.Secret, Service: s.Service, Validity: s.Validity, CAValidity: s.CAValidity}
}
