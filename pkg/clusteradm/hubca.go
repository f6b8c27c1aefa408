package clusteradm

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

const (
	clusterInfoName = "cluster-info"
	clusterInfoKey  = "kubeconfig"
)

// hubTrust is what verifies the hub.
type hubTrust struct {
	// ca are PEM certificates; the system's hold if it is empty.
	ca []byte
	// fingerprint is that of certificates that nobody has vouched for: they come from
	// the hub itself.
	fingerprint string
}

// givenAuthority reads the certificates that verify the hub from what the flags give;
// nil if they give none.
func givenAuthority(file, data string) ([]byte, error) {
	var content []byte
	var err error
	switch {
	case file != "" && data != "":
		return nil, errors.New("--ca-file and --ca-data exclude each other")
	case file != "":
		if content, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
	case data != "":
		if content, err = base64.StdEncoding.DecodeString(data); err != nil {
			return nil, fmt.Errorf("--ca-data: %w", err)
		}
	default:
		return nil, nil
	}
	if _, err := certutil.ParseCertsPEM(content); err != nil {
		return nil, fmt.Errorf("--ca-file or --ca-data: %w", err)
	}
	return content, nil
}

// discoverTrust finds out what verifies the hub where nobody says so: the system, or
// else what the hub publishes. No token is sent.
func discoverTrust(ctx context.Context, server string) (*hubTrust, error) {
	err := reach(ctx, &rest.Config{Host: server})
	var unknown x509.UnknownAuthorityError
	if err == nil {
		return &hubTrust{}, nil
	}
	if !errors.As(err, &unknown) {
		return nil, fmt.Errorf("hub %s: %w", server, err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return nil, err
	}
	info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfoName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the certificate of the hub %s is of an authority that this system does not know, and the hub does not publish it in ConfigMap %s of %s (%w); give --ca-file", server, clusterInfoName, metav1.NamespacePublic, err)
	}
	ca, err := publishedAuthority(info.Data[clusterInfoKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s in %s of the hub: %w; give --ca-file", clusterInfoName, metav1.NamespacePublic, err)
	}
	if err := reach(ctx, &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
		return nil, fmt.Errorf("the hub %s is not verified by what it publishes: %w; give --ca-file", server, err)
	}
	sum := sha256.Sum256(ca)
	return &hubTrust{ca: ca, fingerprint: hex.EncodeToString(sum[:])}, nil
}

// publishedAuthority reads the certificates from the kubeconfig of cluster-info.
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
	return nil, errors.New("it has no certificate authority")
}

// reach tells whether an API server answers, whatever it says.
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

// isCertificateError tells whether a server was not verified.
func isCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
