package localhub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// tokenLifetime is the validity of ServiceAccount tokens in seconds. It is long because nothing
// renews the tokens while `make run` runs.
const tokenLifetime = 365 * 24 * 60 * 60

// AdminConfig returns a client configuration of a cluster administrator
// (group system:masters), without a client-side rate limit.
func (c *Cluster) AdminConfig() *rest.Config {
	return rest.CopyConfig(c.admin)
}

// UserConfig returns a client configuration of a user with a client certificate that
// the cluster's authority signs. Any user name is possible. RBAC determines the
// permissions from the name and the groups.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	config, err := c.anonymousConfig()
	if err != nil {
		return nil, err
	}
	if config.CertData, config.KeyData, err = c.pki.client.issueClient(time.Time{}, user, groups); err != nil {
		return nil, err
	}
	return config, nil
}

// AnonymousConfig returns a client configuration without any credentials.
func (c *Cluster) AnonymousConfig() *rest.Config {
	return rest.AnonymousClientConfig(c.admin)
}

// ServiceAccountConfig returns a client configuration of a ServiceAccount, with a
// token that the cluster issues. It creates the namespace and the ServiceAccount if
// they do not exist. The cluster must be running.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	token, err := c.newToken(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	config, err := c.anonymousConfig()
	if err != nil {
		return nil, err
	}
	config.BearerToken = token
	return config, nil
}

// newToken returns a token of a ServiceAccount for audiences, or for the cluster itself without any.
func (c *Cluster) newToken(ctx context.Context, namespace, name string, audiences ...string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](tokenLifetime)}}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return token.Status.Token, nil
}

func (c *Cluster) anonymousConfig() (*rest.Config, error) {
	bundle, err := cert.EncodeCertificates(c.pki.trusted...)
	if err != nil {
		return nil, err
	}
	return c.on.reach(&rest.Config{
		Host:            c.host,
		TLSClientConfig: rest.TLSClientConfig{CAData: bundle},
		QPS:             -1,
	}), nil
}

// WriteKubeconfig writes a kubeconfig with the credentials of UserConfig to path.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	config, err := c.UserConfig(user, groups...)
	if err != nil {
		return err
	}
	return writeKubeconfig(path, c.Name, user, config)
}

// WriteAdminKubeconfig writes a cluster administrator's kubeconfig to path.
func (c *Cluster) WriteAdminKubeconfig(path string) error {
	return writeKubeconfig(path, c.Name, "admin", c.admin)
}

// writeKubeconfig writes a kubeconfig with inlined credentials. The replacement is atomic,
// because a program may be reading the previous file.
func writeKubeconfig(path, cluster, user string, config *rest.Config) error {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: config.Host, CertificateAuthorityData: config.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken},
		},
		Contexts: map[string]*clientcmdapi.Context{
			cluster: {Cluster: cluster, AuthInfo: user},
		},
		CurrentContext: cluster,
	})
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return writeFile(path, content)
}

// writeFile atomically replaces a file. Only the current user can read it.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// adminKubeconfig returns the path of an administrator's kubeconfig.
func (c *Cluster) adminKubeconfig() string {
	return filepath.Join(c.dir, "admin.kubeconfig")
}
