package agent

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/validation"

	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	// DefaultRegistrationNamespace is the namespace of the Secret with the agent's identity, if the
	// agent does not run in a pod.
	DefaultRegistrationNamespace = "open-cluster-management-agent"
	// DefaultHubKubeconfigSecret is the name of that Secret.
	DefaultHubKubeconfigSecret = "hub-kubeconfig-secret"
	// minCertificateLifetime is the shortest certificate lifetime that Kubernetes accepts.
	minCertificateLifetime = 10 * time.Minute
	// driverAWSIRSAAlias is the name of the driver aws-irsa in upstream OCM agents.
	driverAWSIRSAAlias = "awsirsa"
)

// RegistrationOptions are the flags of the registration with the hub. If BootstrapKubeconfig is empty,
// the agent does not register.
type RegistrationOptions struct {
	// Config contains the fields that flags set directly. Dir may be empty.
	membership.Config
	// HubClusterARN and ManagedClusterARN are the ARNs of the two EKS clusters. Only for aws-irsa.
	HubClusterARN, ManagedClusterARN string
}

// NewRegistrationOptions returns the defaults.
func NewRegistrationOptions() *RegistrationOptions {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = DefaultRegistrationNamespace
	}
	return &RegistrationOptions{Config: membership.Config{
		Driver: registerv1alpha1.DriverCSR, Namespace: namespace, SecretName: DefaultHubKubeconfigSecret,
	}}
}

// AddFlags adds the flags that set the options.
func (o *RegistrationOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", o.BootstrapKubeconfig, "File with the address of the hub and an identity with permission to register clusters. With it, the agent registers the cluster and obtains its own credentials. Mutually exclusive with --hub-kubeconfig.")
	fs.StringVar(&o.BootstrapSecret, "bootstrap-kubeconfig-secret", o.BootstrapSecret, "Secret in the namespace of --registration-namespace that is mounted at --bootstrap-kubeconfig. The agent reads it instead of the file, which the kubelet updates later, and deletes it when the cluster has its own identity. If it is empty, the agent deletes nothing.")
	fs.StringVar((*string)(&o.Driver), "registration-auth", string(o.Driver), "How the cluster authenticates to the hub: csr (a client certificate that the hub signs) or aws-irsa (an AWS IAM role).")
	fs.StringVar(&o.HubClusterARN, "hub-cluster-arn", o.HubClusterARN, "ARN of the EKS cluster of the hub. Required for aws-irsa.")
	fs.StringVar(&o.HubClusterARN, "eks-hub-cluster-arn", o.HubClusterARN, "Alias of --hub-cluster-arn.")
	fs.StringVar(&o.ManagedClusterARN, "managed-cluster-arn", o.ManagedClusterARN, "ARN of the managed EKS cluster. Required for aws-irsa.")
	fs.StringVar(&o.Namespace, "registration-namespace", o.Namespace, "Namespace on the managed cluster of the Secret with the agent's identity on the hub. Defaults to the namespace of the pod.")
	fs.StringVar(&o.SecretName, "hub-kubeconfig-secret", o.SecretName, "Name of the Secret with the agent's identity on the hub. Each hub requires a Secret of its own.")
	fs.StringVar(&o.Dir, "hub-kubeconfig-dir", o.Dir, "Directory for the files of the agent's identity, which only the agent can read. Defaults to a temporary directory.")
	fs.DurationVar(&o.CertificateLifetime, "csr-expiration", o.CertificateLifetime, "Requested lifetime of client certificates, at least 10m. If it is 0, the hub decides.")
}

// Validate returns all errors of the options.
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
				errs = append(errs, fmt.Errorf("%s is required with --registration-auth=%s", flag, o.Driver))
			} else if _, err := irsa.ParseARN(arn); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			}
		}
	default:
		errs = append(errs, fmt.Errorf("--registration-auth must be %s or %s, not %q", registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA, o.Driver))
	}
	for _, problem := range validation.ValidateNamespaceName(o.Namespace, false) {
		errs = append(errs, fmt.Errorf("--registration-namespace %q: %s", o.Namespace, problem))
	}
	for _, problem := range validation.NameIsDNSSubdomain(o.SecretName, false) {
		errs = append(errs, fmt.Errorf("--hub-kubeconfig-secret %q: %s", o.SecretName, problem))
	}
	if o.BootstrapSecret == o.SecretName || o.BootstrapSecret == membership.StandbySecret {
		errs = append(errs, fmt.Errorf("--bootstrap-kubeconfig-secret %q: must not be the Secret of --hub-kubeconfig-secret or of the standby hub", o.BootstrapSecret))
	}
	if o.CertificateLifetime != 0 && o.CertificateLifetime < minCertificateLifetime {
		errs = append(errs, fmt.Errorf("--csr-expiration must be at least %s, not %s", minCertificateLifetime, o.CertificateLifetime))
	}
	return errs
}

func (o *RegistrationOptions) driver() registerv1alpha1.RegistrationDriver {
	if o.Driver == driverAWSIRSAAlias {
		return registerv1alpha1.DriverAWSIRSA
	}
	return o.Driver
}

// Registration returns the configuration of valid options, or nil if the agent does not register. It
// creates a temporary directory if Dir is empty, which the caller removes.
func (o *RegistrationOptions) Registration() (*membership.Config, error) {
	if o.BootstrapKubeconfig == "" {
		return nil, nil
	}
	config := o.Config
	config.Driver = o.driver()
	var err error
	if config.Driver == registerv1alpha1.DriverAWSIRSA {
		if config.HubCluster, err = irsa.ParseARN(o.HubClusterARN); err != nil {
			return nil, fmt.Errorf("--hub-cluster-arn: %w", err)
		}
		if config.ManagedCluster, err = irsa.ParseARN(o.ManagedClusterARN); err != nil {
			return nil, fmt.Errorf("--managed-cluster-arn: %w", err)
		}
	}
	if config.Dir == "" {
		if config.Dir, err = os.MkdirTemp("", "hub-kubeconfig-"); err != nil {
			return nil, fmt.Errorf("--hub-kubeconfig-dir: %w", err)
		}
	}
	return &config, nil
}
