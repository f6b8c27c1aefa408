package membership

import (
	"context"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// Config is the configuration of a Registrar. BootstrapKubeconfig, BootstrapSecret, CertificateLifetime
// and Endpoint are optional. The fields about AWS are required only for aws-irsa.
type Config struct {
	ClusterName string
	Driver      registerv1alpha1.RegistrationDriver
	// BootstrapKubeconfig is the file with the identity that registers the cluster. Each attempt
	// reads it again.
	BootstrapKubeconfig string
	// BootstrapSecret is the Secret in Namespace that is mounted at BootstrapKubeconfig. It is read instead
	// of the file, and deleted while the hub accepts the cluster.
	BootstrapSecret string
	// Namespace and SecretName name the Secret with the identity of the cluster.
	Namespace, SecretName string
	// Dir is the directory of the files of the identity. It is created if necessary.
	Dir string
	// HubCluster and ManagedCluster are the two EKS clusters; only for aws-irsa.
	HubCluster, ManagedCluster irsa.ARN
	// CertificateLifetime is requested of the hub. If it is zero, the hub decides.
	CertificateLifetime time.Duration
	// Endpoint is the external URL of the managed cluster's API server, and CA reads its CA.
	Endpoint string
	CA       func() ([]byte, error)
	// These are clients of the managed cluster, Identity for the Secrets of the registration. It defaults to Managed.
	Managed, Identity kubernetes.Interface
	Dynamic           dynamic.Interface
	// Fence is open while the agent serves a hub. All other clients of the managed cluster must use it. It may be nil.
	Fence *fence.Fence
	// Tune sets the common fields of all clients of the hub, such as the user agent.
	Tune func(*rest.Config)
	// Clock determines the expiry of certificates.
	Clock clock.WithTicker
	// Retained lists the objects that stay because a restored hub does not know them. It may be nil.
	Retained func() string
}

// Hub contains the data to connect to the hub.
type Hub struct {
	// Config is a client configuration. Its credentials are renewed automatically.
	Config *rest.Config
	// Hash identifies the hub on the managed cluster. It stays the same when the address of the hub
	// changes, as long as the Secret exists.
	Hash string
	// Latest returns the last known state of the own ManagedCluster, or nil. It may be nil.
	Latest func() *clusterv1.ManagedCluster
}

// Workload is the part of an agent that runs while the hub accepts the cluster.
type Workload interface {
	// Serve runs until ctx ends. It returns when all its goroutines have ended. It may be called
	// again.
	Serve(ctx context.Context, hub Hub) error
	// Remove deletes all objects that were applied for the hub from the managed cluster, and
	// returns nil when they are deleted. It must not require the hub.
	Remove(ctx context.Context, hub Hub) error
}
