package join

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// BootstrapSecret is the Secret with which the agent registers, and HubSecret that with its credentials.
	BootstrapSecret = "bootstrap-hub-kubeconfig"
	HubSecret       = "hub-kubeconfig-secret"

	clusterNameKey = "cluster-name"
	// hubHashKey is the key of the hub in the records of the agent. Other agents use the hash of the address.
	hubHashKey = "hub-hash"
)

// Credentials are the credentials of an agent on its hub, as read from a Secret.
type Credentials struct {
	Cluster   string
	namespace string
	hubHash   string
	data      map[string][]byte
	// hub and user are nil until the agent has credentials.
	hub  *clientcmdapi.Cluster
	user *clientcmdapi.AuthInfo
}

// ReadCredentials reads a Secret of the agent. It returns nil without one, and an error with damaged credentials.
func ReadCredentials(ctx context.Context, kube kubernetes.Interface, namespace, name string) (*Credentials, error) {
	secret, err := cli.Optional(kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil || secret == nil {
		return nil, cli.Prefix(err, "the Secret %s in %s", name, namespace)
	}
	c := &Credentials{namespace: namespace, Cluster: string(secret.Data[clusterNameKey]), hubHash: string(secret.Data[hubHashKey]), data: secret.Data}
	content := secret.Data[manifests.KubeconfigKey]
	if len(content) == 0 {
		return c, nil
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return c, fmt.Errorf("the Secret %s in %s: %s: %w", name, namespace, manifests.KubeconfigKey, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return c, fmt.Errorf("the Secret %s in %s: %s: the current context %q is not complete", name, namespace, manifests.KubeconfigKey, config.CurrentContext)
	}
	c.hub, c.user = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if c.hubHash == "" {
		sum := sha256.Sum256([]byte(c.hub.Server))
		c.hubHash = hex.EncodeToString(sum[:])
	}
	return c, nil
}

// Complete reports whether the Secret contains a kubeconfig.
func (c *Credentials) Complete() bool { return c != nil && c.hub != nil }

// server returns the URL of the hub and its certificate authority, or nothing if the agent has no credentials yet.
func (c *Credentials) server() (string, []byte) {
	if !c.Complete() {
		return "", nil
	}
	return c.hub.Server, c.content(c.hub.CertificateAuthorityData, c.hub.CertificateAuthority)
}

// Static returns a client configuration that acts on the hub as the agent, without the program that gets a token. Writers of
// the Secret must not be able to read files or run programs on this machine, so it uses only the content of the Secret.
func (c *Credentials) Static() *rest.Config {
	return &rest.Config{Host: c.hub.Server, BearerToken: c.user.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		Insecure: c.hub.InsecureSkipTLSVerify, ServerName: c.hub.TLSServerName,
		CAData:   c.content(c.hub.CertificateAuthorityData, c.hub.CertificateAuthority),
		CertData: c.content(c.user.ClientCertificateData, c.user.ClientCertificate),
		KeyData:  c.content(c.user.ClientKeyData, c.user.ClientKey),
	}}
}

// Config does the same. A program that gets a token runs in the Pod of the agent.
func (c *Credentials) Config(ctx context.Context, managed *cli.Clients) (*rest.Config, error) {
	config := c.Static()
	if c.user.Exec == nil {
		return config, nil
	}
	var err error
	config.BearerToken, err = tokenFromAgent(ctx, managed, c.namespace, append([]string{c.user.Exec.Command}, c.user.Exec.Args...))
	return config, err
}

// content returns the data of a field, or the value of the key of the Secret that is mounted as the file.
func (c *Credentials) content(data []byte, file string) []byte {
	if len(data) > 0 || file == "" {
		return data
	}
	return c.data[path.Base(file)]
}

// tokenFromAgent runs the token command in the Pod of the agent: only that can act as the IAM role of the cluster.
func tokenFromAgent(ctx context.Context, managed *cli.Clients, namespace string, command []string) (string, error) {
	pods, err := managed.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: manifests.AgentLabel})
	if err != nil {
		return "", fmt.Errorf("list the Pods of the agent: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		var credential clientauthenticationv1.ExecCredential
		output, err := execute(ctx, managed, pod, command)
		if err == nil {
			err = json.Unmarshal(output, &credential)
		}
		if err == nil && (credential.Status == nil || credential.Status.Token == "") {
			err = errors.New("the output contains no token")
		}
		if err != nil {
			return "", fmt.Errorf("token of the hub from Pod %s: %w", pod.Name, err)
		}
		return credential.Status.Token, nil
	}
	return "", errors.New("only a running Pod of the agent can assume the IAM role of the cluster, and there is none; give credentials for the hub with --hub-kubeconfig")
}

func execute(ctx context.Context, managed *cli.Clients, pod *corev1.Pod, command []string) ([]byte, error) {
	request := managed.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: pod.Spec.Containers[0].Name, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(managed.Config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	var out, errOut bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return nil, fmt.Errorf("%w: %s", err, cli.Printable(errOut.String()))
	}
	return out.Bytes(), nil
}
