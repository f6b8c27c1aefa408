package install

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	outputText = "text"
	// bootstrapCheck is the time in which the hub accepts a new bootstrap token.
	bootstrapCheck = 10 * time.Second
)

// NewGet returns the command clusteradm get.
func NewGet(env cli.Environment) *cobra.Command {
	return cli.Group("get", "Get a token, or the command with which clusters join", "", newGetToken(env), newGetJoinCommand(env))
}

// inviting are the commands that print a token of the hub. They change nothing of the installation.
type inviting struct {
	cli.Environment

	server        string
	cluster       string
	auth          []string
	hubARN        string
	output        string
	tokenDuration time.Duration
	timeout       time.Duration
	bootstrap     bool
}

func (g *inviting) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&g.server, "hub-apiserver", "", "URL at which managed clusters reach the hub. Defaults to the URL in the kubeconfig.")
	flags.DurationVar(&g.tokenDuration, "token-duration", defaultTokenDuration, "Lifetime of the token.")
	flags.DurationVar(&g.timeout, "timeout", time.Minute, "Maximum duration of the command.")
	flags.BoolVar(&g.bootstrap, "use-bootstrap-token", false, "Create a bootstrap token of Kubernetes (a Secret in kube-system) instead of a token of the ServiceAccount "+manifests.BootstrapAccount+". Requires kube-apiserver --enable-bootstrap-token-auth.")
}

func newGetToken(env cli.Environment) *cobra.Command {
	g := &inviting{Environment: env}
	command := &cobra.Command{
		Use:   "token",
		Short: "Print a token with which clusters request to join the hub",
		Args:  cobra.NoArgs,
		RunE: cli.Within(&g.timeout, func(ctx context.Context, _ []string) error {
			if err := cli.OneOf("output", g.output, outputText, cli.OutputJSON); err != nil {
				return err
			}
			join, err := g.invite(ctx)
			if err != nil {
				return err
			}
			if g.output == cli.OutputJSON {
				return json.NewEncoder(g.Out).Encode(map[string]string{"hub-token": join.token, "hub-apiserver": join.server})
			}
			g.Say("token=%s\n\nIt expires at %s.\n\n%s", join.token, join.expires.Format(time.RFC3339), join)
			return nil
		}),
	}
	g.addFlags(command.Flags())
	command.Flags().StringVarP(&g.output, "output", "o", outputText, "text or json.")
	return command
}

func newGetJoinCommand(env cli.Environment) *cobra.Command {
	g := &inviting{Environment: env}
	command := &cobra.Command{
		Use:   "join-command",
		Short: "Print the command with which a cluster joins the hub, with a new token",
		Args:  cobra.NoArgs,
		RunE: cli.Within(&g.timeout, func(ctx context.Context, _ []string) error {
			join, err := g.invite(ctx)
			if err == nil {
				g.Say("%s", join)
			}
			return err
		}),
	}
	flags := command.Flags()
	g.addFlags(flags)
	flags.StringVar(&g.cluster, "cluster-name", "", "Name of the cluster. By default, the command contains the word CLUSTER_NAME.")
	flags.StringSliceVar(&g.auth, "registration-auth", nil, "Registration driver of the cluster. Defaults to the first driver of the server.")
	flags.StringVar(&g.hubARN, "hub-cluster-arn", "", "ARN of the hub's EKS cluster, for aws-irsa. Defaults to that of the server.")
	return command
}

// invite returns the command with which clusters join.
func (g *inviting) invite(ctx context.Context) (join joinCommand, err error) {
	errs := checkToken(g.tokenDuration, g.server)
	if g.cluster != "" {
		errs = append(errs, cli.CheckName("cluster-name", g.cluster))
	}
	if err := errors.Join(errs...); err != nil {
		return join, err
	}
	clients, err := g.Connect()
	if err != nil {
		return join, err
	}
	hub, err := g.hub(ctx, clients.Kube)
	if err != nil {
		return join, err
	}
	waits, err := handover.Held(ctx, clients.Kube)
	if err != nil {
		return join, err
	}
	create := bootstrapToken
	if g.bootstrap {
		create = kubernetesToken
	}
	join, err = newJoinCommand(ctx, clients, hub, g.server, g.tokenDuration, create)
	join.cluster, join.standby = g.cluster, waits
	return join, err
}

// hub returns the settings of the hub that a join command contains: those of the flags, or of the installed server.
func (g *inviting) hub(ctx context.Context, kube kubernetes.Interface) (*hubSettings, error) {
	hub := &hubSettings{drivers: []registerv1alpha1.RegistrationDriver{program.DefaultDriver}}
	installed, err := readServer(ctx, kube)
	if installed != nil {
		hub = &installed.settings
	}
	if err == nil && len(g.auth) > 0 {
		hub.drivers, err = program.ParseDrivers(g.auth)
	}
	if err == nil && hub.aws() && (hub.arn == nil || g.hubARN != "") {
		hub.arn = &irsa.ARN{}
		*hub.arn, err = program.ClusterARN(g.ConfigFlags, "hub-cluster-arn", g.hubARN)
	}
	return hub, err
}

// kubernetesToken returns a bootstrap token of Kubernetes. It deletes the token if the hub does not authenticate it.
func kubernetesToken(ctx context.Context, kube kubernetes.Interface, duration time.Duration) (string, time.Time, error) {
	// Letters and digits only, as the API requires.
	words := strings.ToLower(rand.Text())
	id, value := words[:6], words[6:22]
	expires := time.Now().Add(duration).UTC().Truncate(time.Second)
	secrets := kube.CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": value, "expiration": expires.Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": manifests.BootstrapGroup,
			"description": "Registers clusters; created by clusteradm get token",
		},
	}, metav1.CreateOptions{FieldManager: cli.FieldManager})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("bootstrap token: %w", err)
	}
	token := id + "." + value
	within, cancel := context.WithTimeout(ctx, bootstrapCheck)
	defer cancel()
	if err := cli.Poll(within, func(ctx context.Context) (string, error) {
		review, err := kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Authenticated {
			return "the hub does not authenticate bootstrap tokens: start kube-apiserver with --enable-bootstrap-token-auth, or omit --use-bootstrap-token", nil
		}
		return "", err
	}); err != nil {
		return "", time.Time{}, errors.Join(err, secrets.Delete(context.WithoutCancel(ctx), secret.Name, metav1.DeleteOptions{}))
	}
	return token, expires, nil
}
