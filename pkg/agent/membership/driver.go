package membership

import (
	"context"
	"errors"
	"fmt"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

type hubClients struct {
	kube kubernetes.Interface
	ocm  versioned.Interface
}

func clientsFor(config *rest.Config) (*hubClients, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	kube, kubeErr := kubernetes.NewForConfigAndClient(config, http)
	ocm, ocmErr := versioned.NewForConfigAndClient(config, http)
	if err := errors.Join(kubeErr, ocmErr); err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	return &hubClients{kube: kube, ocm: ocm}, nil
}

// driver is a method of authentication to the hub. To add one, implement this interface and add a
// case to newDriver.
type driver interface {
	// usable returns an error with the reason why the credentials of an identity are not usable, or
	// nil.
	usable(known *identity) error
	// annotations returns the annotations of a new ManagedCluster.
	annotations() map[string]string
	// obtain obtains credentials with the bootstrap identity and returns a function that stores
	// them. While it waits for the hub, it calls note with the cause.
	obtain(ctx context.Context, hub *hubClients, cluster *clusterv1.ManagedCluster, known *identity, note func(string)) (func(*identity), error)
	// user returns the user of the kubeconfig.
	user() *clientcmdapi.AuthInfo
	// renew renews the credentials with the current ones until ctx ends. It calls renewed after
	// each change of the Secret.
	renew(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error)
}

func newDriver(config *Config, keep *store) (driver, error) {
	switch config.Driver {
	case registerv1alpha1.DriverAWSIRSA:
		return newIRSADriver(config)
	case registerv1alpha1.DriverCSR:
		return &csrDriver{clusterName: config.ClusterName, lifetime: config.CertificateLifetime, store: keep, clock: config.Clock}, nil
	default:
		return nil, fmt.Errorf("unknown driver %q", config.Driver)
	}
}
