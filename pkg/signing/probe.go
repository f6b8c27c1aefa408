// Package signing checks whether a hub signs client certificates.
package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/retry"
)

const (
	// DefaultTimeout is sufficient for kube-controller-manager, which signs within a second.
	DefaultTimeout = 15 * time.Second
	// cleanupTimeout bounds the removal of the request.
	cleanupTimeout = 5 * time.Second
	// probeLifetime is the shortest lifetime that signers accept.
	probeLifetime = 10 * time.Minute
)

// Probe checks whether the hub signs client certificates. It creates and approves a request,
// and removes it again. refusal is the reason why the hub does not sign, or empty if it does.
// An error means that the check failed. name is the prefix of the name of the request, and its
// common name. Probe discards the key, so that the certificate cannot be used.
func Probe(ctx context.Context, kube kubernetes.Interface, name string, timeout time.Duration) (refusal string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := probeRequest(name)
	if err != nil {
		return "", err
	}
	requests := kube.CertificatesV1().CertificateSigningRequests()
	created, err := requests.Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a CertificateSigningRequest: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		// Not delete: the server may delete collections only, as it does for the requests of a cluster.
		failure := requests.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, created.Name).String(),
		})
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("delete the CertificateSigningRequest %s: %w", created.Name, failure))
		}
	}()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := requests.Get(ctx, created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status.Conditions = append(current.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
			Reason: "SigningProbe", Message: "The request finds out whether the hub signs client certificates.",
		})
		_, err = requests.UpdateApproval(ctx, created.Name, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("approve the CertificateSigningRequest %s: %w", created.Name, err)
	}
	// kube-controller-manager usually signs within milliseconds.
	delays := wait.Backoff{Duration: 25 * time.Millisecond, Factor: 2, Steps: 10, Cap: 500 * time.Millisecond}
	err = delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		current, err := requests.Get(ctx, created.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range current.Status.Conditions {
			if condition.Type == certificatesv1.CertificateFailed || condition.Type == certificatesv1.CertificateDenied {
				refusal = fmt.Sprintf("the request is %s: %s %s", condition.Type, condition.Reason, condition.Message)
				return true, nil
			}
		}
		return len(current.Status.Certificate) > 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Sprintf("an approved request got no certificate within %s", timeout), nil
	}
	return refusal, err
}

func probeRequest(name string) (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	content, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			ExpirationSeconds: csr.DurationToExpirationSeconds(probeLifetime),
		},
	}, nil
}
