package clusteradm

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"
)

const (
	// hubHashKey is the key of the hub's identifier in the records of the agent. Other
	// agents use the hash of the address instead.
	hubHashKey = "hub-hash"
	// agentLabel selects the Pods of the agent.
	agentLabel = "app=open-cluster-management-agent"
)

// hubCredentials are the credentials of an agent on its hub, as read from its Secret.
type hubCredentials struct {
	namespace string
	cluster   string
	hubHash   string
	data      map[string][]byte
	// hub and user are nil until the agent has credentials.
	hub  *clientcmdapi.Cluster
	user *clientcmdapi.AuthInfo
}

// readCredentials reads the Secret of the agent in a namespace, or returns nil if it does
// not exist.
func readCredentials(ctx context.Context, kube kubernetes.Interface, namespace string) (*hubCredentials, error) {
	secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, hubSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret %s in %s: %w", hubSecret, namespace, err)
	}
	c := &hubCredentials{namespace: namespace, cluster: string(secret.Data[clusterNameKey]), hubHash: string(secret.Data[hubHashKey]), data: secret.Data}
	content := secret.Data[kubeconfigKey]
	if len(content) == 0 {
		return c, nil
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s in %s: %s: %w", hubSecret, namespace, kubeconfigKey, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, fmt.Errorf("the Secret %s in %s: %s: the current context %q is not complete", hubSecret, namespace, kubeconfigKey, config.CurrentContext)
	}
	c.hub, c.user = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if c.hubHash == "" {
		sum := sha256.Sum256([]byte(c.hub.Server))
		c.hubHash = hex.EncodeToString(sum[:])
	}
	return c, nil
}

// server returns the URL of the hub, or "" if the agent has no credentials yet.
func (c *hubCredentials) server() string {
	if c.hub == nil {
		return ""
	}
	return c.hub.Server
}

// restConfig returns a client configuration that acts on the hub as the agent. Writers of
// the Secret must not be able to read files or run programs on this machine. It therefore
// uses only the content of the Secret, and runs a credential program in the Pod of the
// agent.
func (c *hubCredentials) restConfig(ctx context.Context, managed *rest.Config, kube kubernetes.Interface) (*rest.Config, error) {
	config := &rest.Config{Host: c.hub.Server, BearerToken: c.user.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		Insecure: c.hub.InsecureSkipTLSVerify, ServerName: c.hub.TLSServerName,
		CAData:   c.content(c.hub.CertificateAuthorityData, c.hub.CertificateAuthority),
		CertData: c.content(c.user.ClientCertificateData, c.user.ClientCertificate),
		KeyData:  c.content(c.user.ClientKeyData, c.user.ClientKey),
	}}
	if c.user.Exec == nil {
		return config, nil
	}
	token, err := tokenFromAgent(ctx, managed, kube, c.namespace, append([]string{c.user.Exec.Command}, c.user.Exec.Args...))
	if err != nil {
		return nil, err
	}
	config.BearerToken = token
	return config, nil
}

// content returns the data of a field, or the value of the key of the Secret that is
// mounted as the file.
func (c *hubCredentials) content(data []byte, file string) []byte {
	if len(data) > 0 || file == "" {
		return data
	}
	return c.data[path.Base(file)]
}

// tokenFromAgent runs the token command in the Pod of the agent, because only that Pod can
// act as the IAM role of the cluster.
func tokenFromAgent(ctx context.Context, managed *rest.Config, kube kubernetes.Interface, namespace string, command []string) (string, error) {
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: agentLabel})
	if err != nil {
		return "", fmt.Errorf("list the Pods of the agent: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		output, err := execute(ctx, managed, kube, pod, command)
		if err != nil {
			return "", fmt.Errorf("token of the hub from Pod %s: %w", pod.Name, err)
		}
		var credential clientauthenticationv1.ExecCredential
		if err := json.Unmarshal(output, &credential); err != nil {
			return "", fmt.Errorf("token of the hub from Pod %s: %w", pod.Name, err)
		}
		if credential.Status == nil || credential.Status.Token == "" {
			return "", fmt.Errorf("token of the hub from Pod %s: the output contains no token", pod.Name)
		}
		return credential.Status.Token, nil
	}
	return "", errors.New("only a running Pod of the agent can assume the IAM role of the cluster, and there is none; give credentials for the hub with --hub-kubeconfig")
}

func execute(ctx context.Context, managed *rest.Config, kube kubernetes.Interface, pod *corev1.Pod, command []string) ([]byte, error) {
	request := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: pod.Spec.Containers[0].Name, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(managed, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	var out, errOut bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return nil, fmt.Errorf("%w: %s", err, printable(errOut.String()))
	}
	return out.Bytes(), nil
}
