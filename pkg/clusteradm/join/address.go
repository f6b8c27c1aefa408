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
	// hubCheckTimeout bounds the check whether this machine can reach the hub. Agents may have another network.
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
	errs := []error{
		cli.Wrong(a.token == "", "--hub-token is required; clusteradm get token prints one on %s", a.hub),
		cli.Wrong(strings.ContainsFunc(a.token, func(r rune) bool { return r <= ' ' || r > '~' }), "--hub-token is not a token"),
		cli.Wrong(a.server == "", "--hub-apiserver is required"),
		a.readAuthority(),
	}
	if a.server != "" {
		errs = append(errs, cli.CheckURL("hub-apiserver", a.server))
	}
	return errs
}

func (a *Address) readAuthority() (err error) {
	flag := "--ca-file"
	switch {
	case a.caFile != "" && a.caData != "":
		return errors.New("--ca-file and --ca-data cannot be used together")
	case a.caFile != "":
		a.ca, err = os.ReadFile(a.caFile)
	case a.caData != "":
		flag = "--ca-data"
		a.ca, err = base64.StdEncoding.DecodeString(a.caData)
	default:
		return nil
	}
	if err == nil {
		_, err = certutil.ParseCertsPEM(a.ca)
	}
	return cli.Prefix(err, "%s", flag)
}

// Check returns a client of the hub that uses the token, and reports whether the hub has a ManagedCluster. If this machine
// cannot reach a hub whose authority is given, it only warns, because the managed cluster may reach it.
func (a *Address) Check(ctx context.Context, env cli.Environment, cluster string) (hub versioned.Interface, exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if hub, err = versioned.NewForConfig(&rest.Config{Host: a.server, BearerToken: a.token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: a.ca}}); err != nil {
		return nil, false, err
	}
	_, err = hub.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	var unknown x509.UnknownAuthorityError
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return hub, true, nil
	case a.ca == nil && errors.As(err, &unknown): // before the token was sent
		if err := a.discover(ctx, env); err != nil {
			return nil, false, err
		}
		return a.Check(ctx, env, cluster)
	case cli.Missing(err):
	case apierrors.IsUnauthorized(err):
		return nil, false, fmt.Errorf("%s %s rejects --hub-token, which may have expired; clusteradm get token prints a new one", a.hub, a.server)
	case apierrors.IsForbidden(err):
		return nil, false, fmt.Errorf("--hub-token has no permission to join a cluster: %w", err)
	case apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("%s is not a hub: it does not serve ManagedClusters", a.server)
	case errors.As(err, &unknown):
		return nil, false, fmt.Errorf("%s %s: %w; --ca-file sets its certificate authority", a.hub, a.server, err)
	case cli.IsCertificateError(err):
		return nil, false, fmt.Errorf("%s %s: %w", a.hub, a.server, err)
	case errors.As(err, &status):
		env.Warn("%s returns an error: %s", a.hub, cli.Printable(err.Error()))
	case a.caFile == "" && a.caData == "":
		return nil, false, fmt.Errorf("%s %s cannot be reached from here, so its certificate cannot be checked: %w; give --ca-file", a.hub, a.server, err)
	default:
		env.Warn("%s cannot be reached from here and was not checked: %s", a.hub, cli.Printable(err.Error()))
	}
	return hub, false, nil
}

// discover reads the certificates that the hub publishes, with a warning. It sends no token.
func (a *Address) discover(ctx context.Context, env cli.Environment) error {
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
	secret := manifests.Named("v1", manifests.KindSecret, namespace, name)
	secret.Object["type"] = string(corev1.SecretTypeOpaque)
	secret.Object["data"] = map[string]any{manifests.KubeconfigKey: base64.StdEncoding.EncodeToString(kubeconfig)}
	return secret, nil
}
