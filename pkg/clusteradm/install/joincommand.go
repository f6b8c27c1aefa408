package clusteradm

import (
	"cmp"
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
	"open-cluster-management.io/hub-apiserver/pkg/version"
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
	if missing(err) {
		return "", time.Time{}, fmt.Errorf("the ServiceAccount %s in %s does not exist: run clusteradm init", bootstrapAccount, bootstrapNamespace)
	}
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
	// cluster is the name of the cluster, or empty for the word CLUSTER_NAME.
	cluster string
	images  imageSettings
	ca      []byte
	drivers []registerv1alpha1.RegistrationDriver
	arn     *irsa.ARN
}

// newJoinCommand returns the command with which clusters join the hub at an address, or at that of the kubeconfig, and the end
// of the validity of the token that create returns.
func newJoinCommand(ctx context.Context, kube kubernetes.Interface, config *rest.Config, hub *hubSettings, server string, duration time.Duration, create func(context.Context, kubernetes.Interface, time.Duration) (string, time.Time, error)) (joinCommand, time.Time, error) {
	j := joinCommand{server: cmp.Or(server, config.Host), images: hub.image, drivers: hub.drivers, arn: hub.arn}
	if registry, tag, ok := releaseImage(serverName, hub.image.image); ok && (registry != archiveRegistry || tag != version.Short()) {
		j.images.registry, j.images.version = registry, tag
	}
	var err error
	if j.ca, err = hubAuthority(config); err != nil {
		return j, time.Time{}, err
	}
	var expires time.Time
	j.token, expires, err = create(ctx, kube, duration)
	return j, expires, err
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

// text returns the command that clusters run, or the command for the hub whose clusters a waiting hub may adopt.
func (j joinCommand) text(waits bool) string {
	if waits {
		return j.standby()
	}
	return j.String()
}

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
	return shellCommand(append(words, "--cluster-name "+cmp.Or(j.cluster, "CLUSTER_NAME")))
}
