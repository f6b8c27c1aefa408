package clusteradm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const joinExample = `  # As clusteradm init prints it on the hub
  clusteradm join --hub-token TOKEN --hub-apiserver https://hub.example.com:6443 --cluster-name cluster1

  # A cluster on EKS, by IAM roles
  clusteradm join --hub-token TOKEN --hub-apiserver https://hub.example.com:6443 --cluster-name cluster1 \
      --registration-auth=aws-irsa \
      --eks-hub-cluster-arn arn:aws:eks:us-west-2:123456789012:cluster/hub

  # A second hub
  clusteradm join --hub-token TOKEN --hub-apiserver https://other.example.com:6443 --cluster-name cluster1 \
      --agent-namespace open-cluster-management-agent-other`

// hubCheckTimeout bounds how long join looks for the hub, which the managed cluster may
// reach where this machine does not.
const hubCheckTimeout = 15 * time.Second

// joining is the command clusteradm join.
type joining struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	token, server  string
	caFile, caData string
	auth           []string
	hubARN         string
	managedARN     string
	agent          string
	wait           bool
	timeout        time.Duration
	settings       agentSettings
}

func newJoin(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	j := &joining{
		access: access, streams: streams, auth: []string{string(registerv1alpha1.DriverCSR)}, agent: modeDeploy,
		timeout: defaultTimeout, settings: agentSettings{namespace: defaultAgentNamespace},
	}
	command := &cobra.Command{
		Use:   "join",
		Short: "Have the cluster of the current context join a hub",
		Long: `Have the cluster of the current context join a hub: install the agent with what it needs
to ask the hub. The hub must accept the cluster, by clusteradm accept. To do so again changes
only what is not as the flags say; a cluster that has joined keeps its identity.`,
		Example: joinExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return j.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&j.token, "hub-token", "", "Token that clusteradm init has printed. Required.")
	flags.StringVar(&j.server, "hub-apiserver", "", "URL of the hub. Required.")
	flags.StringVar(&j.caFile, "ca-file", "", "File with the certificate authority of the hub, in PEM. Without it, the system must know that, or the hub publish it.")
	flags.StringVar(&j.caData, "ca-data", "", "What --ca-file contains, in base64.")
	flags.StringVar(&j.settings.cluster, "cluster-name", "", "Name of this cluster on the hub. Required.")
	flags.StringSliceVar(&j.auth, "registration-auth", j.auth, "How this cluster shows the hub who it is: csr or aws-irsa.")
	flags.StringVar(&j.hubARN, "eks-hub-cluster-arn", "", "ARN of the hub's EKS cluster. Required with aws-irsa.")
	flags.StringVar(&j.hubARN, "hub-cluster-arn", "", "Another spelling of --eks-hub-cluster-arn.")
	flags.StringVar(&j.managedARN, "managed-cluster-arn", "", "ARN of this EKS cluster, for aws-irsa. The kubeconfig's name of the cluster when that is an ARN.")
	flags.StringVar(&j.settings.image, "image", "", "Image of the agent. That of the manifests when this is empty.")
	flags.StringVar(&j.settings.namespace, "agent-namespace", j.settings.namespace, "Namespace of the agent. Each hub takes one of its own.")
	flags.StringVar(&j.agent, "agent", j.agent, "deploy runs the agent on this cluster; external installs all but its Deployment, for an agent that runs elsewhere.")
	flags.BoolVar(&j.wait, "wait", false, "Wait until the agent has asked the hub.")
	flags.DurationVar(&j.timeout, "timeout", j.timeout, "How long all of it may take.")
	return command
}

// complete checks the flags, and fills in what follows from others.
func (j *joining) complete() error {
	var errs []error
	if j.token == "" {
		errs = append(errs, errors.New("--hub-token is required; clusteradm init prints one on the hub"))
	}
	if strings.ContainsFunc(j.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		errs = append(errs, errors.New("--hub-token is not a token"))
	}
	switch {
	case j.server == "":
		errs = append(errs, errors.New("--hub-apiserver is required"))
	default:
		if err := checkURL(j.server); err != nil {
			errs = append(errs, fmt.Errorf("--hub-apiserver: %w", err))
		}
	}
	errs = append(errs, checkName("cluster-name", j.settings.cluster), checkName("agent-namespace", j.settings.namespace))
	if j.agent != modeDeploy && j.agent != modeExternal {
		errs = append(errs, fmt.Errorf("--agent must be %s or %s, not %q", modeDeploy, modeExternal, j.agent))
	}
	if j.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout must be more than 0, not %s", j.timeout))
	}
	drivers, err := parseDrivers(j.auth)
	switch {
	case err != nil:
		errs = append(errs, err)
	case len(drivers) > 1:
		errs = append(errs, errors.New("--registration-auth must be one way: a cluster shows the hub who it is by one"))
	case drivers[0] == registerv1alpha1.DriverAWSIRSA:
		errs = append(errs, j.completeAWS())
	case j.hubARN != "" || j.managedARN != "":
		errs = append(errs, fmt.Errorf("--eks-hub-cluster-arn and --managed-cluster-arn take --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if len(drivers) > 0 {
		j.settings.driver = drivers[0]
	}
	if j.settings.ca, err = givenAuthority(j.caFile, j.caData); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (j *joining) completeAWS() error {
	if j.hubARN == "" {
		return fmt.Errorf("--eks-hub-cluster-arn is required with --registration-auth=%s", registerv1alpha1.DriverAWSIRSA)
	}
	hub, err := irsa.ParseARN(j.hubARN)
	if err != nil {
		return fmt.Errorf("--eks-hub-cluster-arn: %w", err)
	}
	managed, err := clusterARN(j.access, "managed-cluster-arn", j.managedARN)
	if err != nil {
		return err
	}
	identity := irsa.Identity{Hub: hub, Managed: managed}
	if err := identity.Validate(); err != nil {
		return fmt.Errorf("--managed-cluster-arn: %w", err)
	}
	j.settings.identity = &identity
	return nil
}

// checkName checks what is the name of a namespace, on the hub or on this cluster.
func checkName(flag, name string) error {
	if name == "" {
		return fmt.Errorf("--%s is required", flag)
	}
	if problems := validation.ValidateNamespaceName(name, false); len(problems) > 0 {
		return fmt.Errorf("--%s %q: %s", flag, name, strings.Join(problems, "; "))
	}
	return nil
}

func (j *joining) run(ctx context.Context) error {
	if err := j.complete(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	config, err := clientConfig(j.access)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	install, err := newInstaller(config, j.streams.Out)
	if err != nil {
		return err
	}
	joined, err := j.registered(ctx, kube)
	if err != nil {
		return err
	}
	if j.settings.noWorks, err = install.aggregates(ctx, workv1.SchemeGroupVersion); err != nil {
		return err
	}
	hub, err := j.hub(ctx, joined)
	if err != nil {
		return err
	}
	if j.settings.bootstrapKubeconfig, err = bootstrapKubeconfig(j.server, j.token, j.settings.ca); err != nil {
		return err
	}
	objects, err := j.settings.objects()
	if err != nil {
		return err
	}
	if j.agent == modeDeploy {
		deployment, err := j.settings.deployment()
		if err != nil {
			return err
		}
		objects = append(objects, deployment)
	}
	if err := install.apply(ctx, objects...); err != nil {
		return err
	}
	if j.wait {
		say(j.streams.Out, "waiting until the agent has asked the hub")
		if err := j.asked(ctx, kube, hub); err != nil {
			return err
		}
	}
	j.next(ctx, kube)
	return nil
}

// registered tells whether this cluster has registered already by the agent of this
// namespace. Under another name it must leave that hub first.
func (j *joining) registered(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	credentials, err := readCredentials(ctx, kube, j.settings.namespace)
	if err != nil || credentials == nil {
		return false, err
	}
	if name := credentials.cluster; name != "" && name != j.settings.cluster {
		return false, fmt.Errorf("the agent in namespace %s is registered as cluster %s. Run clusteradm unjoin --cluster-name %s first; or, for another hub, join with another --agent-namespace", j.settings.namespace, printable(name), printable(name))
	}
	if server := credentials.server(); server != "" && server != j.server {
		j.warn("the agent in namespace %s has joined the hub %s, and takes %s for another address of it. If it is another hub, choose another --agent-namespace.", j.settings.namespace, printable(server), j.server)
	}
	return true, nil
}

// hub returns how to ask the hub by the token, having tried. A hub that this machine
// does not reach is a warning only: the managed cluster may.
func (j *joining) hub(ctx context.Context, joined bool) (versioned.Interface, error) {
	within, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if j.settings.ca == nil {
		trust, err := discoverTrust(within, j.server)
		if err != nil {
			return nil, err
		}
		if j.settings.ca = trust.ca; trust.fingerprint != "" {
			j.warn("the certificate authority of the hub was read from the hub itself, so nothing shows that it is the right one. The SHA-256 of the PEM is %s; --ca-file gives it for sure.", trust.fingerprint)
		}
	}
	hub, err := versioned.NewForConfig(&rest.Config{Host: j.server, BearerToken: j.token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: j.settings.ca}})
	if err != nil {
		return nil, err
	}
	_, err = hub.ClusterV1().ManagedClusters().Get(within, j.settings.cluster, metav1.GetOptions{})
	var status apierrors.APIStatus
	switch {
	case err == nil && !joined:
		j.warn("the hub has a ManagedCluster %s already. Go on only if it is this cluster; if it is another one, choose another --cluster-name: the hub takes both for the same.", j.settings.cluster)
	case err == nil:
	case apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("the hub %s does not take --hub-token, which may have expired; clusteradm init prints a new one", j.server)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("--hub-token must be one that lets clusters join: %w", err)
	case apierrors.IsNotFound(err) && !missing(err):
		return nil, fmt.Errorf("%s is not a hub: it has no ManagedClusters", j.server)
	case apierrors.IsNotFound(err):
	case errors.As(err, &status):
		j.warn("the hub is not well: %s", printable(err.Error()))
	case isCertificateError(err):
		return nil, fmt.Errorf("hub %s: %w", j.server, err)
	default:
		j.warn("the hub cannot be reached from here, so nothing of it is checked: %s", printable(err.Error()))
	}
	return hub, nil
}

func (j *joining) warn(format string, args ...any) {
	say(j.streams.ErrOut, "Warning: "+format, args...)
}

// asked waits until the hub knows the cluster.
func (j *joining) asked(ctx context.Context, kube kubernetes.Interface, hub versioned.Interface) error {
	if j.agent == modeDeploy {
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			deployment, err := kube.AppsV1().Deployments(j.settings.namespace).Get(ctx, agentName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			// The agent is not ready before the hub has accepted the cluster.
			if deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.UpdatedReplicas == 0 {
				return fmt.Sprintf("Deployment %s in %s has no Pod", agentName, j.settings.namespace), nil
			}
			return "", nil
		}); err != nil {
			return err
		}
	}
	return poll(ctx, func(ctx context.Context) (string, error) {
		_, err := hub.ClusterV1().ManagedClusters().Get(ctx, j.settings.cluster, metav1.GetOptions{})
		if missing(err) {
			return fmt.Sprintf("the hub has no ManagedCluster %s yet; see the log of the agent in namespace %s", j.settings.cluster, j.settings.namespace), nil
		}
		return "", err
	})
}

// next prints what to do next.
func (j *joining) next(ctx context.Context, kube kubernetes.Interface) {
	if j.agent == modeExternal {
		say(j.streams.Out, "\nStart the agent with a file %s that has the key %s of Secret %s in %s, and:\n\n    agent %s",
			bootstrapKubeconfigFile, kubeconfigKey, bootstrapSecret, j.settings.namespace, strings.Join(j.settings.arguments(), " "))
	}
	if identity := j.settings.identity; identity != nil {
		say(j.streams.Out, "\nThe agent acts in AWS as the role %s.\nIf it does not exist yet, make it:\n", identity.ManagedClusterRoleARN())
		for _, line := range identity.Commands(oidcProvider(ctx, kube), j.settings.namespace+":"+agentName) {
			say(j.streams.Out, "    %s", line)
		}
	}
	say(j.streams.Out, "\nThe agent asks the hub to accept %[1]s. On the hub, run\n\n    clusteradm accept --clusters %[1]s", j.settings.cluster)
}

// oidcProvider is who vouches for the ServiceAccounts of a cluster; empty if that is not
// to be had, and then a placeholder stands for it.
func oidcProvider(ctx context.Context, kube kubernetes.Interface) string {
	var document struct {
		Issuer string `json:"issuer"`
	}
	content, err := kube.CoreV1().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	if err != nil || json.Unmarshal(content, &document) != nil {
		return ""
	}
	return document.Issuer
}

// missing tells whether an object does not exist, as opposed to its kind.
func missing(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	details := status.Status().Details
	return details.Name != "" && !slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
