package clusteradm

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/retry"
)

const (
	probeName = "clusteradm-probe"
	// defaultProbeTimeout is long for kube-controller-manager, which signs within a second.
	defaultProbeTimeout = 15 * time.Second
	// cleanupTimeout bounds the removal of what a command made for itself only.
	cleanupTimeout = 5 * time.Second
	// probeLifetime is the shortest that signers take.
	probeLifetime = 10 * time.Minute
)

// probeSigning finds out whether the hub signs client certificates, by a request that
// is approved and removed again. It returns why the hub does not; an error says that
// it could not be found out. The key is never kept, so that nobody can use what is
// signed.
func probeSigning(ctx context.Context, kube kubernetes.Interface, timeout time.Duration) (refusal string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := probeRequest()
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
		if failure := requests.Delete(ctx, created.Name, metav1.DeleteOptions{}); failure != nil && !apierrors.IsNotFound(failure) {
			err = errors.Join(err, fmt.Errorf("delete the CertificateSigningRequest %s: %w", created.Name, failure))
		}
	}()
	if err := approve(ctx, requests, created.Name, "ClusteradmProbe", "clusteradm init looks whether client certificates are signed."); err != nil {
		return "", fmt.Errorf("approve the CertificateSigningRequest %s: %w", created.Name, err)
	}
	err = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		current, err := requests.Get(ctx, created.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if denied, why := finished(current); denied {
			refusal = why
			return true, nil
		}
		return len(current.Status.Certificate) > 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Sprintf("an approved request got no certificate within %s", timeout), nil
	}
	return refusal, err
}

// finished tells whether a request will never be signed, and why.
func finished(request *certificatesv1.CertificateSigningRequest) (bool, string) {
	for _, condition := range request.Status.Conditions {
		if condition.Type == certificatesv1.CertificateFailed || condition.Type == certificatesv1.CertificateDenied {
			return true, fmt.Sprintf("the request is %s: %s %s", condition.Type, condition.Reason, condition.Message)
		}
	}
	return false, ""
}

func probeRequest() (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	content, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: probeName}}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: probeName + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			ExpirationSeconds: csr.DurationToExpirationSeconds(probeLifetime),
		},
	}, nil
}

// approve adds the condition Approved to a request.
func approve(ctx context.Context, requests certificatesclient.CertificateSigningRequestInterface, name, reason, message string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		request, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
		_, err = requests.UpdateApproval(ctx, name, request, metav1.UpdateOptions{})
		return err
	})
}
