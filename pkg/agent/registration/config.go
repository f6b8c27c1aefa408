package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// TokenCommand is which program gets tokens for a hub on EKS.
type TokenCommand string

const (
	// BuiltInTokenCommand is this program itself.
	BuiltInTokenCommand TokenCommand = "builtin"
	// AWSTokenCommand is the aws command line.
	AWSTokenCommand TokenCommand = "aws"
)

// Config is what a Registrar needs. BootstrapKubeconfig, CertificateLifetime, Endpoint and,
// for the driver csr, what is about AWS may be empty.
type Config struct {
	// ClusterName is the name of the managed cluster on the hub.
	ClusterName string
	// Driver is how the cluster shows the hub who it is.
	Driver registerv1alpha1.RegistrationDriver
	// BootstrapKubeconfig is the file with the identity that registers the cluster. It is
	// read anew for every try.
	BootstrapKubeconfig string
	// Namespace and SecretName say where the identity of the cluster is kept.
	Namespace, SecretName string
	// Dir is where its files are; it is made if it does not exist.
	Dir string
	// HubCluster and ManagedCluster are the two EKS clusters; only for aws-irsa.
	HubCluster, ManagedCluster irsa.ARN
	// TokenCommand gets the tokens of aws-irsa.
	TokenCommand TokenCommand
	// CertificateLifetime is what is asked for; the hub decides if it is zero.
	CertificateLifetime time.Duration
	// Endpoint is the URL of the managed cluster's API server as others reach it, and CA
	// reads what verifies it.
	Endpoint string
	CA       func() ([]byte, error)
	// Managed and Dynamic are clients of the managed cluster.
	Managed kubernetes.Interface
	Dynamic dynamic.Interface
	// Tune sets what is common to all clients of the hub, such as the user agent.
	Tune func(*rest.Config)
	// Clock is what certificates expire by.
	Clock clock.WithTicker
	// Stuck returns an error that names what workers of the agent do not return from, nil
	// if there is nothing; it may be nil.
	Stuck func() error
}

// Hub is how the agent reaches its hub.
type Hub struct {
	// Config is a client configuration. Its credentials are renewed by themselves.
	Config *rest.Config
	// Hash identifies the hub in what the agent writes down. It stays the same for as long
	// as the Secret exists, whatever address the hub has.
	Hash string
}

// Workload is what an agent does for a hub.
type Workload interface {
	// Serve does what the hub asks for until ctx ends. When it returns, all that it has
	// started has ended; it may be called again.
	Serve(ctx context.Context, hub Hub) error
	// Remove removes from the managed cluster what was done for the hub, and returns nil
	// when it is gone. It must not need the hub.
	Remove(ctx context.Context, hub Hub) error
}

// maxName bounds names of clusters and agents in the common name of a certificate.
const maxName = 63

func (c *Config) validate() error {
	var errs []error
	for _, required := range []struct{ what, value string }{
		{"the name of the cluster", c.ClusterName}, {"the namespace of the Secret", c.Namespace},
		{"the name of the Secret", c.SecretName}, {"the directory", c.Dir},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("%s is missing", required.what))
		}
	}
	if len(c.ClusterName) > maxName {
		errs = append(errs, fmt.Errorf("the name of the cluster is longer than %d characters", maxName))
	}
	switch c.Driver {
	case registerv1alpha1.DriverCSR:
	case registerv1alpha1.DriverAWSIRSA:
		if c.HubCluster == (irsa.ARN{}) || c.ManagedCluster == (irsa.ARN{}) {
			errs = append(errs, errors.New("aws-irsa needs the ARNs of the hub's and of the managed EKS cluster"))
		}
		if c.TokenCommand != BuiltInTokenCommand && c.TokenCommand != AWSTokenCommand {
			errs = append(errs, fmt.Errorf("token command %q: must be %s or %s", c.TokenCommand, BuiltInTokenCommand, AWSTokenCommand))
		}
	default:
		errs = append(errs, fmt.Errorf("driver %q: must be %s or %s", c.Driver, registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA))
	}
	return errors.Join(errs...)
}
