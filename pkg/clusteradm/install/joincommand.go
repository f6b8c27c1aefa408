package install

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// createToken returns a token with which clusters register, and the end of its validity.
type createToken func(ctx context.Context, kube kubernetes.Interface, duration time.Duration) (string, time.Time, error)

func bootstrapToken(ctx context.Context, kube kubernetes.Interface, duration time.Duration) (string, time.Time, error) {
	seconds := int64(duration / time.Second)
	request, err := kube.CoreV1().ServiceAccounts(manifests.BootstrapNamespace).CreateToken(ctx, manifests.BootstrapAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	switch {
	case cli.Missing(err):
		return "", time.Time{}, fmt.Errorf("the ServiceAccount %s in %s does not exist: run clusteradm init", manifests.BootstrapAccount, manifests.BootstrapNamespace)
	case err != nil:
		return "", time.Time{}, fmt.Errorf("token of ServiceAccount %s in %s: %w", manifests.BootstrapAccount, manifests.BootstrapNamespace, err)
	}
	// The hub may return a shorter lifetime than requested.
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

func checkToken(duration time.Duration, server string) []error {
	errs := []error{cli.Wrong(duration < minTokenDuration, "--token-duration must be at least %s, not %s", minTokenDuration, duration)}
	if server != "" {
		errs = append(errs, cli.CheckURL("hub-apiserver", server))
	}
	return errs
}

// joinCommand is the command with which a cluster joins the hub, or with which another hub lets it adopt its clusters.
type joinCommand struct {
	// standby is true if the hub waits to adopt clusters.
	standby       bool
	server, token string
	// expires is the end of the validity of the token.
	expires time.Time
	// cluster is the name of the cluster, or empty for the word CLUSTER_NAME.
	cluster string
	images  program.Images
	ca      []byte
	drivers []registerv1alpha1.RegistrationDriver
	arn     *irsa.ARN
}

// newJoinCommand returns the command with which clusters join the hub at an address, or at that of the kubeconfig.
func newJoinCommand(ctx context.Context, clients *cli.Clients, hub *hubSettings, server string, duration time.Duration, create createToken) (joinCommand, error) {
	config := rest.CopyConfig(clients.Config)
	j := joinCommand{server: cmp.Or(server, config.Host), images: hub.image, drivers: hub.drivers, arn: hub.arn}
	if registry, tag, ok := program.ReleaseOf(manifests.ServerName, hub.image.Image); ok && (registry != program.ArchiveRegistry || tag != version.Short()) {
		j.images.Registry, j.images.Version = registry, tag
	}
	// Without certificates in the kubeconfig, those of the system verify the hub.
	err := rest.LoadTLSFiles(config)
	if j.ca = config.CAData; err == nil {
		j.token, j.expires, err = create(ctx, clients.Kube, duration)
	}
	return j, err
}

// String returns the command for the first driver, quoted for a shell.
func (j joinCommand) String() string {
	words := []string{"--hub-token " + j.token, "--hub-apiserver " + j.server}
	if len(j.ca) > 0 {
		words = append(words, "--ca-data "+base64.StdEncoding.EncodeToString(j.ca))
	}
	if j.standby {
		return cli.ShellCommand(append([]string{"clusteradm hub standby"}, words...)...)
	}
	if j.drivers[0] == registerv1alpha1.DriverAWSIRSA {
		words = append(words, fmt.Sprintf("--registration-auth %s", registerv1alpha1.DriverAWSIRSA), "--eks-hub-cluster-arn "+j.arn.String())
	}
	if j.images.Registry != "" {
		words = append(words, "--image-registry "+j.images.Registry)
		if j.images.Version != "" {
			words = append(words, "--bundle-version "+j.images.Version)
		}
	}
	return cli.ShellCommand(append(append([]string{"clusteradm join"}, words...), "--cluster-name "+cmp.Or(j.cluster, "CLUSTER_NAME"))...)
}
