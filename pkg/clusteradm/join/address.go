package join

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	// hubCheckTimeout bounds the check whether this machine can reach the hub. The managed cluster may reach the hub even if
	// this machine cannot.
	hubCheckTimeout = 15 * time.Second
	// clusterInfo is the ConfigMap in which a hub publishes its certificate authority, as kubeadm does.
	clusterInfo = "cluster-info"
)

// Address is a hub that flags name, and the token with which a cluster registers there.
type Address struct {
	hub                           string
	token, server, caFile, caData string
	// ca verifies the hub. It is nil if the system does.
	ca []byte
}

// AddFlags adds the flags. Their descriptions contain the name of the hub and when they are required.
func (a *Address) AddFlags(flags *pflag.FlagSet, hub, required string) {
	a.hub = hub
	flags.StringVar(&a.token, "hub-token", "", "Token that clusteradm get token prints on "+hub+". "+required)
	flags.StringVar(&a.server, "hub-apiserver", "", "URL of "+hub+". "+required)
	flags.StringVar(&a.caFile, "ca-file", "", "PEM file with the certificate authority of "+hub+". If empty, the system must trust it or the hub must publish it.")
	flags.StringVar(&a.caData, "ca-data", "", "Content of --ca-file in base64.")
}

// Complete checks the flags and reads the certificate authority that they name.
func (a *Address) Complete() []error {
	var errs []error
	switch {
	case a.token == "":
		errs = append(errs, fmt.Errorf("--hub-token is required; clusteradm get token prints one on %s", a.hub))
	case strings.ContainsFunc(a.token, func(r rune) bool { return r <= ' ' || r > '~' }):
		errs = append(errs, errors.New("--hub-token is not a token"))
	}
	if a.server == "" {
		errs = append(errs, errors.New("--hub-apiserver is required"))
	} else {
		errs = append(errs, cli.CheckURL("hub-apiserver", a.server))
	}
	return append(errs, a.readAuthority())
}

func (a *Address) readAuthority() error {
	var content []byte
	var err error
	switch {
	case a.caFile != "" && a.caData != "":
		return errors.New("--ca-file and --ca-data cannot be used together")
	case a.caFile != "":
		if content, err = os.ReadFile(a.caFile); err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
	case a.caData != "":
		if content, err = base64.StdEncoding.DecodeString(a.caData); err != nil {
			return fmt.Errorf("--ca-data: %w", err)
		}
	default:
		return nil
	}
	if _, err := certutil.ParseCertsPEM(content); err != nil {
		return fmt.Errorf("--ca-file or --ca-data: %w", err)
	}
	a.ca = content
	return nil
}

// Check returns a client of the hub that uses the token, and reports whether the hub has a ManagedCluster. It returns an
// error for a hub or a token that does not work. If this machine cannot reach the hub, it only warns, because the managed
// cluster may reach it.
func (a *Address) Check(ctx context.Context, env cli.Environment, cluster string) (hub versioned.Interface, exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if a.ca == nil {
		if err := a.discover(ctx, env); err != nil {
			return nil, false, err
		}
	}
	if hub, err = versioned.NewForConfig(&rest.Config{Host: a.server, BearerToken: a.token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: a.ca}}); err != nil {
		return nil, false, err
	}
	_, err = hub.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return hub, true, nil
	case cli.Missing(err):
	case apierrors.IsUnauthorized(err):
		return nil, false, fmt.Errorf("%s %s rejects --hub-token, which may have expired; clusteradm get token prints a new one", a.hub, a.server)
	case apierrors.IsForbidden(err):
		return nil, false, fmt.Errorf("--hub-token has no permission to join a cluster: %w", err)
	case apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("%s is not a hub: it does not serve ManagedClusters", a.server)
	case cli.IsCertificateError(err):
		return nil, false, fmt.Errorf("%s %s: %w", a.hub, a.server, err)
	case errors.As(err, &status):
		env.Warn("%s returns an error: %s", a.hub, cli.Printable(err.Error()))
	default:
		env.Warn("%s cannot be reached from here and was not checked: %s", a.hub, cli.Printable(err.Error()))
	}
	return hub, false, nil
}

// discover finds the certificates that verify the hub if no flag sets them: the certificates of the system, or else the
// certificates that the hub publishes, with a warning. It sends no token.
func (a *Address) discover(ctx context.Context, env cli.Environment) error {
	err := reach(ctx, &rest.Config{Host: a.server})
	if err == nil {
		return nil
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("hub %s: %w", a.server, err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: a.server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return err
	}
	info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfo, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("this system does not trust the certificate authority of the hub %s, and the hub does not publish it in ConfigMap %s of namespace %s (%w); give it with --ca-file", a.server, clusterInfo, metav1.NamespacePublic, err)
	}
	ca, err := publishedAuthority(info.Data[manifests.KubeconfigKey])
	if err != nil {
		return fmt.Errorf("ConfigMap %s in %s of the hub: %w; give --ca-file", clusterInfo, metav1.NamespacePublic, err)
	}
	if err := reach(ctx, &rest.Config{Host: a.server, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
		return fmt.Errorf("the certificate authority that the hub %s publishes does not verify its certificate: %w; give the right one with --ca-file", a.server, err)
	}
	sum := sha256.Sum256(ca)
	env.Warn("the certificate authority of %s was read from the hub itself and is not verified. The SHA-256 hash of the PEM is %s. To verify it, give --ca-file.", a.hub, hex.EncodeToString(sum[:]))
	a.ca = ca
	return nil
}

func publishedAuthority(kubeconfig string) ([]byte, error) {
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		if _, err := certutil.ParseCertsPEM(cluster.CertificateAuthorityData); err == nil {
			return cluster.CertificateAuthorityData, nil
		}
	}
	return nil, errors.New("it contains no certificate authority")
}

// reach returns nil if an API server responds with any status.
func reach(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.RESTClient().Get().AbsPath("/version").MaxRetries(0).DoRaw(ctx)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return nil
	}
	return err
}

// Secret returns the Secret with which an agent registers its cluster at the hub.
func (a *Address) Secret(namespace, name string) (*unstructured.Unstructured, error) {
	const hub, user = "hub", "bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[hub] = &clientcmdapi.Cluster{Server: a.server, CertificateAuthorityData: a.ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.token}
	config.Contexts[user] = &clientcmdapi.Context{Cluster: hub, AuthInfo: user}
	config.CurrentContext = user
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	return manifests.FromTyped(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: manifests.KindSecret},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{manifests.KubeconfigKey: kubeconfig},
	})
}
