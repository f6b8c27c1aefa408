package clusteradm

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	bootstrapNamespace = "open-cluster-management"
	bootstrapAccount   = "agent-registration-bootstrap"
)

// bootstrapToken returns a token with which clusters register.
func bootstrapToken(ctx context.Context, kube kubernetes.Interface, duration time.Duration) (string, time.Time, error) {
	seconds := int64(duration / time.Second)
	request, err := kube.CoreV1().ServiceAccounts(bootstrapNamespace).CreateToken(ctx, bootstrapAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("token of ServiceAccount %s in %s: %w", bootstrapAccount, bootstrapNamespace, err)
	}
	// The hub may return a shorter lifetime than requested.
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

// hubAuthority returns the certificates of the kubeconfig that verify the hub. The result
// is empty if the certificates of the system apply.
func hubAuthority(config *rest.Config) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return config.CAData, nil
}

// joinCommand is the command with which a cluster joins the hub.
type joinCommand struct {
	server, token string
	images        imageSettings
	ca            []byte
	drivers       []registerv1alpha1.RegistrationDriver
	arn           *irsa.ARN
}

// hub returns the flags that name the hub.
func (j joinCommand) hub() []string {
	words := []string{"--hub-token " + j.token, "--hub-apiserver " + j.server}
	if len(j.ca) > 0 {
		words = append(words, "--ca-data "+base64.StdEncoding.EncodeToString(j.ca))
	}
	return words
}

// standby returns the command that names the hub as the standby hub of clusters, quoted for a shell.
func (j joinCommand) standby() string {
	return shellCommand(append([]string{"clusteradm hub standby"}, j.hub()...))
}

func shellCommand(words []string) string { return "    " + strings.Join(words, " \\\n        ") }

// String returns the command for the first driver, quoted for a shell.
func (j joinCommand) String() string {
	words := append([]string{"clusteradm join"}, j.hub()...)
	if j.drivers[0] == registerv1alpha1.DriverAWSIRSA {
		words = append(words, fmt.Sprintf("--registration-auth %s", registerv1alpha1.DriverAWSIRSA), "--eks-hub-cluster-arn "+j.arn.String())
	}
	if j.images.registry != "" {
		words = append(words, "--image-registry "+j.images.registry)
		if j.images.version != "" {
			words = append(words, "--bundle-version "+j.images.version)
		}
	}
	return shellCommand(append(words, "--cluster-name CLUSTER_NAME"))
}
