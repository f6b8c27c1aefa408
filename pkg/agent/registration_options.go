package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/validation"

	"open-cluster-management.io/hub-apiserver/pkg/agent/registration"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	// DefaultRegistrationNamespace is where the agent keeps its identity outside of a pod.
	DefaultRegistrationNamespace = "open-cluster-management-agent"
	// DefaultHubKubeconfigSecret is the name of the Secret with it.
	DefaultHubKubeconfigSecret = "hub-kubeconfig-secret"
	// minCertificateLifetime is the least that Kubernetes signs.
	minCertificateLifetime = 10 * time.Minute
	// driverAWSIRSAAlias is what the public agent calls the driver aws-irsa.
	driverAWSIRSAAlias = "awsirsa"
)

// RegistrationOptions are the flags of the registration with the hub.
type RegistrationOptions struct {
	// BootstrapKubeconfig is the file with the identity that registers the cluster; there is
	// no registration if it is empty.
	BootstrapKubeconfig string
	// Auth is how the cluster shows the hub who it is: csr or aws-irsa.
	Auth string
	// HubClusterARN and ManagedClusterARN are those of the two EKS clusters; only for aws-irsa.
	HubClusterARN, ManagedClusterARN string
	// TokenCommand is which program gets tokens for a hub on EKS: builtin or aws.
	TokenCommand string
	// Namespace and Secret say where the identity is kept on the managed cluster.
	Namespace, Secret string
	// Dir is where its files are.
	Dir string
	// CertificateLifetime is what is asked for; the hub decides if it is zero.
	CertificateLifetime time.Duration
}

// NewRegistrationOptions returns the defaults.
func NewRegistrationOptions() *RegistrationOptions {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = DefaultRegistrationNamespace
	}
	return &RegistrationOptions{
		Auth: string(registerv1alpha1.DriverCSR), TokenCommand: string(registration.BuiltInTokenCommand),
		Namespace: namespace, Secret: DefaultHubKubeconfigSecret,
	}
}

// AddFlags adds the flags that set the options.
func (o *RegistrationOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", o.BootstrapKubeconfig, "File with the address of the hub and an identity that may register clusters there. With it, the agent registers the cluster and gets its own credentials; --hub-kubeconfig is then not given.")
	fs.StringVar(&o.Auth, "registration-auth", o.Auth, "How the cluster shows the hub who it is: csr, by a client certificate that the hub signs, or aws-irsa, by an AWS IAM role.")
	fs.StringVar(&o.HubClusterARN, "hub-cluster-arn", o.HubClusterARN, "ARN of the hub's EKS cluster; for aws-irsa.")
	fs.StringVar(&o.HubClusterARN, "eks-hub-cluster-arn", o.HubClusterARN, "The same as --hub-cluster-arn.")
	fs.StringVar(&o.ManagedClusterARN, "managed-cluster-arn", o.ManagedClusterARN, "ARN of the EKS cluster that is managed; for aws-irsa.")
	fs.StringVar(&o.TokenCommand, "aws-token-command", o.TokenCommand, "What gets tokens for a hub on EKS: builtin for this program, or aws for the aws command line, which must then be installed.")
	fs.StringVar(&o.Namespace, "registration-namespace", o.Namespace, "Namespace of the managed cluster in which the agent keeps its identity on the hub. By default that of its pod.")
	fs.StringVar(&o.Secret, "hub-kubeconfig-secret", o.Secret, "Name of the Secret with the agent's identity on the hub. Agents of several hubs need one each.")
	fs.StringVar(&o.Dir, "hub-kubeconfig-dir", o.Dir, "Directory for the files of the agent's identity, which nobody else can read. By default a temporary one.")
	fs.DurationVar(&o.CertificateLifetime, "csr-expiration", o.CertificateLifetime, "For how long client certificates are asked to be valid, 10m at least; the hub decides when this is 0.")
}

// Validate returns everything that is wrong with the options.
func (o *RegistrationOptions) Validate() []error {
	if o.BootstrapKubeconfig == "" {
		return nil
	}
	var errs []error
	switch o.driver() {
	case registerv1alpha1.DriverCSR:
	case registerv1alpha1.DriverAWSIRSA:
		for flag, arn := range map[string]string{"--hub-cluster-arn": o.HubClusterARN, "--managed-cluster-arn": o.ManagedClusterARN} {
			if arn == "" {
				errs = append(errs, fmt.Errorf("%s is required with --registration-auth=%s", flag, o.Auth))
			} else if _, err := irsa.ParseARN(arn); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			}
		}
		if o.TokenCommand != string(registration.BuiltInTokenCommand) && o.TokenCommand != string(registration.AWSTokenCommand) {
			errs = append(errs, fmt.Errorf("--aws-token-command must be %s or %s, not %q", registration.BuiltInTokenCommand, registration.AWSTokenCommand, o.TokenCommand))
		}
	default:
		errs = append(errs, fmt.Errorf("--registration-auth must be %s or %s, not %q", registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA, o.Auth))
	}
	for _, problem := range validation.ValidateNamespaceName(o.Namespace, false) {
		errs = append(errs, fmt.Errorf("--registration-namespace %q: %s", o.Namespace, problem))
	}
	for _, problem := range validation.NameIsDNSSubdomain(o.Secret, false) {
		errs = append(errs, fmt.Errorf("--hub-kubeconfig-secret %q: %s", o.Secret, problem))
	}
	if o.CertificateLifetime != 0 && o.CertificateLifetime < minCertificateLifetime {
		errs = append(errs, fmt.Errorf("--csr-expiration must be at least %s, not %s", minCertificateLifetime, o.CertificateLifetime))
	}
	return errs
}

func (o *RegistrationOptions) driver() registerv1alpha1.RegistrationDriver {
	if o.Auth == driverAWSIRSAAlias {
		return registerv1alpha1.DriverAWSIRSA
	}
	return registerv1alpha1.RegistrationDriver(o.Auth)
}

// Config turns the options into a configuration; nil if there is no registration. It makes
// the temporary directory, which is the caller's to remove, if none was given.
func (o *RegistrationOptions) Config() (*registration.Config, error) {
	if o.BootstrapKubeconfig == "" {
		return nil, nil
	}
	config := &registration.Config{
		Driver: o.driver(), BootstrapKubeconfig: o.BootstrapKubeconfig, Namespace: o.Namespace, SecretName: o.Secret, Dir: o.Dir,
		TokenCommand: registration.TokenCommand(o.TokenCommand), CertificateLifetime: o.CertificateLifetime,
	}
	var errs []error
	if config.Driver == registerv1alpha1.DriverAWSIRSA {
		var err error
		if config.HubCluster, err = irsa.ParseARN(o.HubClusterARN); err != nil {
			errs = append(errs, fmt.Errorf("--hub-cluster-arn: %w", err))
		}
		if config.ManagedCluster, err = irsa.ParseARN(o.ManagedClusterARN); err != nil {
			errs = append(errs, fmt.Errorf("--managed-cluster-arn: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.Dir == "" {
		var err error
		if config.Dir, err = os.MkdirTemp("", "hub-kubeconfig-"); err != nil {
			return nil, fmt.Errorf("--hub-kubeconfig-dir: %w", err)
		}
	}
	return config, nil
}
