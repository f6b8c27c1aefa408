package membership

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	kubeconfigHub  = "hub"
	kubeconfigUser = "agent"
)

// endpoint is the address of a hub, and the data to verify the hub.
type endpoint struct {
	server, serverName, proxyURL, ca string
	insecure                         bool
}

func (e *endpoint) hash() string {
	sum := sha256.Sum256([]byte(e.server))
	return hex.EncodeToString(sum[:])
}

// kubeconfig returns a kubeconfig for this hub and a user. The files of the user are in the
// directory of the kubeconfig.
func (e *endpoint) kubeconfig(user *clientcmdapi.AuthInfo) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{kubeconfigHub: {
			Server: e.server, TLSServerName: e.serverName, ProxyURL: e.proxyURL,
			CertificateAuthorityData: []byte(e.ca), InsecureSkipTLSVerify: e.insecure,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{kubeconfigUser: user},
		Contexts:       map[string]*clientcmdapi.Context{kubeconfigHub: {Cluster: kubeconfigHub, AuthInfo: kubeconfigUser}},
		CurrentContext: kubeconfigHub,
	})
}

func endpointOf(config *clientcmdapi.Config) (*endpoint, error) {
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("the current context %q does not exist", config.CurrentContext)
	}
	cluster := config.Clusters[current.Cluster]
	if cluster == nil || cluster.Server == "" {
		return nil, fmt.Errorf("cluster %q of context %q has no address", current.Cluster, config.CurrentContext)
	}
	e := &endpoint{
		server: cluster.Server, serverName: cluster.TLSServerName, proxyURL: cluster.ProxyURL,
		ca: string(cluster.CertificateAuthorityData), insecure: cluster.InsecureSkipTLSVerify,
	}
	if len(e.ca) == 0 && cluster.CertificateAuthority != "" {
		ca, err := os.ReadFile(cluster.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		e.ca = string(ca)
	}
	return e, nil
}

// bootstrap is the bootstrap kubeconfig. It is read for each use, because its tokens are replaced.
type bootstrap struct {
	// file is the path of --bootstrap-kubeconfig, or empty.
	file string
	// secret is the content of the Secret that is mounted as the file, or nil. It replaces the file, which the kubelet updates
	// only after a minute or two.
	secret atomic.Pointer[[]byte]
	// known returns the identity, or nil. It contains the kubeconfig of a standby hub to which the cluster has moved.
	known func() *identity
}

var errNoBootstrap = errors.New("--bootstrap-kubeconfig is required to register")

// joinAgain is what to do if there is no usable bootstrap kubeconfig.
const joinAgain = "run clusteradm join again with a new token of the hub"

// fileServer returns the address of the hub in the file, or an empty string.
func (b *bootstrap) fileServer() string {
	config, err := b.loadFile()
	if err != nil {
		return ""
	}
	e, err := endpointOf(config)
	if err != nil {
		return ""
	}
	return e.server
}

func (b *bootstrap) load() (*clientcmdapi.Config, error) {
	if known := b.known(); known != nil && len(known.data[keyStandbyKubeconfig]) > 0 {
		// An administrator who joins the cluster to yet another hub replaces the file.
		if server := b.fileServer(); server == "" || server == known.get(keyStandbyFor) {
			return loadStandby(known.data[keyStandbyKubeconfig])
		}
	}
	return b.loadFile()
}

func (b *bootstrap) loadFile() (*clientcmdapi.Config, error) {
	if b.file == "" {
		return nil, errNoBootstrap
	}
	content, err := b.content()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w; %s", err, joinAgain)
	}
	var config *clientcmdapi.Config
	if err == nil {
		config, err = clientcmd.Load(content)
	}
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = b.file
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = b.file
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	return config, nil
}

func (b *bootstrap) content() ([]byte, error) {
	if content := b.secret.Load(); content != nil && len(*content) > 0 {
		return *content, nil
	}
	return os.ReadFile(b.file)
}

func (b *bootstrap) endpoint() (*endpoint, error) {
	config, err := b.load()
	if err != nil {
		return nil, err
	}
	e, err := endpointOf(config)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	return e, nil
}

func (b *bootstrap) config() (*rest.Config, error) {
	config, err := b.load()
	if err != nil {
		return nil, err
	}
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	return client, nil
}
