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

// hubTrust verifies the hub.
type hubTrust struct {
	// ca contains PEM certificates. If it is empty, the certificates of the system apply.
	ca []byte
	// fingerprint is set if the certificates come from the hub itself and are not
	// verified.
	fingerprint string
}

// givenAuthority reads the certificates that verify the hub from the flags, or returns nil
// if the flags give none.
func givenAuthority(file, data string) ([]byte, error) {
	var content []byte
	var err error
	switch {
	case file != "" && data != "":
		return nil, errors.New("--ca-file and --ca-data cannot be used together")
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

// discoverTrust finds the certificates that verify the hub if no flag sets them: the
// certificates of the system, or else the certificates that the hub publishes. It sends
// no token.
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
		return nil, fmt.Errorf("this system does not trust the certificate authority of the hub %s, and the hub does not publish it in ConfigMap %s of namespace %s (%w); give it with --ca-file", server, clusterInfoName, metav1.NamespacePublic, err)
	}
	ca, err := publishedAuthority(info.Data[clusterInfoKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s in %s of the hub: %w; give --ca-file", clusterInfoName, metav1.NamespacePublic, err)
	}
	if err := reach(ctx, &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
		return nil, fmt.Errorf("the certificate authority that the hub %s publishes does not verify its certificate: %w; give the right one with --ca-file", server, err)
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

// isCertificateError reports whether the verification of a server failed.
func isCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
