package join

import (
	"context"
	"encoding/base64"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// hubCheckTimeout bounds the check whether this machine can reach the hub. The managed cluster may reach the hub even if
// this machine cannot.
const hubCheckTimeout = 15 * time.Second

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
	flags.StringVar(&a.caFile, "ca-file", "", "PEM file with the certificate authority of "+hub+". If empty, the system must trust it.")
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
		return nil, false, fmt.Errorf("%s %s: %w; give its certificate authority with --ca-data, as clusteradm get join-command prints it, or with --ca-file", a.hub, a.server, err)
	case errors.As(err, &status):
		env.Warn("%s returns an error: %s", a.hub, cli.Printable(err.Error()))
	default:
		env.Warn("%s cannot be reached from here and was not checked: %s", a.hub, cli.Printable(err.Error()))
	}
	return hub, false, nil
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
