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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const joinExample = `  # The command that clusteradm get join-command prints on the hub
  clusteradm join --hub-token TOKEN --hub-apiserver https://hub.example.com:6443 --cluster-name cluster1

  # A cluster on EKS, by IAM roles
  clusteradm join --hub-token TOKEN --hub-apiserver https://hub.example.com:6443 --cluster-name cluster1 \
      --registration-auth=aws-irsa \
      --eks-hub-cluster-arn arn:aws:eks:us-west-2:123456789012:cluster/hub

  # A second hub
  clusteradm join --hub-token TOKEN --hub-apiserver https://other.example.com:6443 --cluster-name cluster1 \
      --agent-namespace open-cluster-management-agent-other

  # A new token for an installed agent. Everything else stays as it is
  clusteradm join --hub-token TOKEN`

// hubCheckTimeout bounds the check whether this machine can reach the hub. The managed
// cluster may reach the hub even if this machine cannot.
const hubCheckTimeout = 15 * time.Second

// theHub is the name of the hub of a cluster in messages.
const theHub = "the hub"

// joining is the command clusteradm join.
type joining struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	address    hubAddress
	auth       []string
	hubARN     string
	managedARN string
	agent      string
	wait       bool
	timeout    time.Duration
	settings   agentSettings

	installation
	// upgrade is true if only the image changes.
	upgrade bool
	// joined are the credentials of the agent, or nil if it has none.
	joined *hubCredentials
	// keepSecret is true if the bootstrap Secret stays as it is, or stays absent.
	keepSecret bool
	// kept are the settings of the installed agent, if it authenticates by the same IAM role.
	kept *agentSettings
}

// registered reports whether the agent has credentials of its hub.
func (j *joining) registered() bool { return j.joined != nil && j.joined.hub != nil }

func newJoin(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	j := &joining{
		access: access, streams: streams, auth: []string{string(registerv1alpha1.DriverCSR)}, agent: modeDeploy,
		timeout: defaultTimeout, settings: agentSettings{namespace: defaultAgentNamespace},
	}
	command := &cobra.Command{
		Use:   "join",
		Short: "Join the cluster of the current context to a hub",
		Long: `Join the cluster of the current context to a hub: install the agent with the credentials to
register. Then accept the cluster on the hub with clusteradm accept. If the agent is installed, the
command changes only what its flags name, and the cluster keeps its identity. Changes of fields that
others have set, and bindings that somebody has deleted, require --yes.`,
		Example: joinExample,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			j.parsed(command.Flags())
			return j.run(command.Context())
		},
	}
	flags := command.Flags()
	const required = "Required unless the agent is installed."
	j.address.addFlags(flags, theHub, required)
	flags.StringVar(&j.settings.cluster, "cluster-name", "", "Name of this cluster on the hub. "+required)
	flags.StringSliceVar(&j.auth, "registration-auth", j.auth, "Registration driver by which the agent authenticates: csr or aws-irsa.")
	flags.StringVar(&j.hubARN, "eks-hub-cluster-arn", "", "ARN of the hub's EKS cluster. Required with aws-irsa.")
	flags.StringVar(&j.hubARN, "hub-cluster-arn", "", "Same as --eks-hub-cluster-arn.")
	flags.StringVar(&j.managedARN, "managed-cluster-arn", "", "ARN of this EKS cluster, for aws-irsa. Defaults to the name of the cluster in the kubeconfig if it is an ARN.")
	j.settings.image.addFlags(flags, "agent")
	j.settings.resources.addFlags(flags, "agent")
	addAgentNamespace(flags, &j.settings.namespace)
	flags.StringVar(&j.agent, "agent", j.agent, "deploy runs the agent on this cluster. external installs all objects except its Deployment, for an agent that runs elsewhere.")
	flags.BoolVar(&j.wait, "wait", false, "Wait until the agent has registered with the hub.")
	flags.DurationVar(&j.timeout, "timeout", j.timeout, "Maximum duration of the command.")
	j.addFlags(flags, "agent")
	return command
}

// complete checks the flags and sets the defaults.
func (j *joining) complete(installed *installedAgent) error {
	var errs []error
	if !j.keepSecret {
		errs = j.address.complete(theHub)
	}
	j.settings.ca = j.address.ca
	errs = append(errs, checkName("cluster-name", j.settings.cluster), checkName("agent-namespace", j.settings.namespace))
	if j.agent != modeDeploy && j.agent != modeExternal {
		errs = append(errs, fmt.Errorf("--agent must be %s or %s, not %q", modeDeploy, modeExternal, j.agent))
	}
	if j.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout must be more than 0, not %s", j.timeout))
	}
	errs = append(errs, j.settings.resources.check()...)
	drivers, err := parseDrivers(j.auth)
	switch {
	case err != nil:
		errs = append(errs, err)
	case len(drivers) > 1:
		errs = append(errs, errors.New("--registration-auth must be a single driver"))
	case drivers[0] == registerv1alpha1.DriverAWSIRSA:
		errs = append(errs, j.completeAWS())
	case j.hubARN != "" || j.managedARN != "":
		errs = append(errs, fmt.Errorf("--eks-hub-cluster-arn and --managed-cluster-arn require --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if len(drivers) > 0 {
		j.settings.driver = drivers[0]
	}
	if j.agent == modeDeploy {
		image := ""
		if installed != nil && !j.reset {
			image = installed.image()
		}
		if j.settings.image.image, err = j.settings.image.of(agentImage, image, version.Short()); err != nil {
			errs = append(errs, err)
		}
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
	j.settings.identity, j.settings.roleARN = &identity, identity.ManagedClusterRoleARN()
	if j.kept != nil && *j.kept.identity == identity {
		j.settings.roleARN = j.kept.roleARN
	}
	return nil
}

// checkName checks a name that is also the name of a namespace, on the hub or on this
// cluster.
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
	ctx, cancel := context.WithTimeout(ctx, max(j.timeout, time.Nanosecond))
	defer cancel()
	config, err := clientConfig(j.access)
	if err != nil {
		return errors.Join(j.complete(nil), err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	install, err := newInstaller(config, j.streams.Out)
	if err != nil {
		return err
	}
	if err := checkName("agent-namespace", j.settings.namespace); err != nil {
		return errors.Join(j.complete(nil), err)
	}
	installed, err := readAgent(ctx, kube, j.settings.namespace)
	if err != nil {
		return errors.Join(j.complete(nil), err)
	}
	if installed == nil && j.upgrade {
		return fmt.Errorf("the cluster has no Deployment %s in %s: upgrade the agent where it runs, or set --agent-namespace", agentName, j.settings.namespace)
	}
	if err := j.keep(ctx, kube, installed); err != nil {
		return err
	}
	if err := j.complete(installed); err != nil {
		return err
	}
	if err := j.sameCluster(); err != nil {
		return err
	}
	if j.settings.noWorks, err = install.aggregates(ctx, workv1.SchemeGroupVersion); err != nil {
		return err
	}
	var hub versioned.Interface
	if !j.keepSecret {
		if hub, err = j.hub(ctx, j.joined != nil); err != nil {
			return err
		}
		if j.settings.bootstrapKubeconfig, err = bootstrapKubeconfig(j.address.server, j.address.token, j.settings.ca); err != nil {
			return err
		}
	}
	objects, err := j.objects(installed)
	if err != nil {
		return err
	}
	changes, err := install.plan(ctx, objects...)
	if err != nil {
		return err
	}
	if err := j.confirm(j.streams, changes, j.reasons(installed, objects, changes)); err != nil || j.dryRun {
		return err
	}
	if err := install.write(ctx, changes); err != nil {
		return err
	}
	switch {
	case j.wait && j.keepSecret:
		say(j.streams.Out, "waiting for the agent")
		err = waitForDeployment(ctx, kube, j.settings.namespace, agentName)
	case j.wait:
		say(j.streams.Out, "waiting for the agent to register with the hub")
		err = j.asked(ctx, kube, hub)
	}
	if err == nil && !j.upgrade {
		j.next(ctx, kube)
	}
	return err
}

// objects returns the objects to install.
func (j *joining) objects(installed *installedAgent) ([]*unstructured.Unstructured, error) {
	objects, err := j.settings.objects(j.agent == modeDeploy)
	if err != nil || installed == nil || j.reset || j.agent != modeDeploy {
		return objects, err
	}
	before, err := installed.settings.objects(true)
	if err != nil {
		return nil, err
	}
	return objects, installed.keep(objects, before, &j.settings.resources, installed.settings.arguments())
}

// reasons returns the changes of an installed agent that require a confirmation.
func (j *joining) reasons(installed *installedAgent, objects []*unstructured.Unstructured, changes []change) []string {
	reasons := foreign(changes, !j.reset)
	if installed == nil && j.joined == nil {
		return reasons
	}
	for _, c := range changes {
		// An administrator may have deleted it to restrict what the hub may do.
		if c.live == nil && isBinding(c.manifest) {
			reasons = append(reasons, fmt.Sprintf("%s does not exist: it would be created, and grant its role to the agent", display(c.manifest)))
		}
	}
	if installed != nil && j.agent == modeDeploy {
		deployment, _, err := deploymentIn(objects, agentName)
		if from := installed.deployment.Spec.Replicas; err == nil && from != nil && !ptr.Equal(from, deployment.Spec.Replicas) {
			reasons = append(reasons, fmt.Sprintf("the replicas of the agent change from %d to %d", *from, ptr.Deref(deployment.Spec.Replicas, 1)))
		}
	}
	return reasons
}

// sameCluster returns an error if the agent in this namespace is that of a cluster with another name. It warns if it has joined a
// hub at another address.
func (j *joining) sameCluster() error {
	name := ""
	if j.joined != nil {
		name = j.joined.cluster
	}
	if name != "" && name != j.settings.cluster {
		return fmt.Errorf("the agent in namespace %s is registered as cluster %s. Run clusteradm unjoin --cluster-name %s first, or join another hub with another --agent-namespace", j.settings.namespace, printable(name), printable(name))
	}
	if !j.registered() || j.keepSecret {
		return nil
	}
	if server := j.joined.server(); server != "" && server != j.address.server {
		j.warn("the agent in namespace %s has joined the hub %s and uses %s as another address of the same hub. If it is a different hub, choose another --agent-namespace.", j.settings.namespace, printable(server), j.address.server)
	}
	return nil
}

// hub returns a client of the hub that uses the token, and checks the connection. If this
// machine cannot reach the hub, it only warns, because the managed cluster may reach it.
func (j *joining) hub(ctx context.Context, joined bool) (versioned.Interface, error) {
	within, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	hub, err := j.address.client(within, theHub, j.warn)
	if err != nil {
		return nil, err
	}
	j.settings.ca = j.address.ca
	_, err = hub.ClusterV1().ManagedClusters().Get(within, j.settings.cluster, metav1.GetOptions{})
	var status apierrors.APIStatus
	switch {
	case err == nil && !joined:
		j.warn("ManagedCluster %s already exists on the hub. If it is not this cluster, choose another --cluster-name: the hub cannot distinguish them.", j.settings.cluster)
	case err == nil:
	case apierrors.IsUnauthorized(err):
		return nil, j.address.rejected(theHub)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("--hub-token has no permission to join a cluster: %w", err)
	case apierrors.IsNotFound(err) && !missing(err):
		return nil, fmt.Errorf("%s is not a hub: it does not serve ManagedClusters", j.address.server)
	case apierrors.IsNotFound(err):
	case errors.As(err, &status):
		j.warn("the hub returns an error: %s", printable(err.Error()))
	case isCertificateError(err):
		return nil, fmt.Errorf("hub %s: %w", j.address.server, err)
	default:
		j.warn("the hub cannot be reached from here and was not checked: %s", printable(err.Error()))
	}
	return hub, nil
}

func (j *joining) warn(format string, args ...any) {
	say(j.streams.ErrOut, "Warning: "+format, args...)
}

// asked waits until the ManagedCluster exists on the hub.
func (j *joining) asked(ctx context.Context, kube kubernetes.Interface, hub versioned.Interface) error {
	if j.agent == modeDeploy {
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			deployment, err := kube.AppsV1().Deployments(j.settings.namespace).Get(ctx, agentName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			// The agent becomes ready only after the hub has accepted the cluster.
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
			return fmt.Sprintf("ManagedCluster %s does not exist on the hub yet; see the log of the agent in namespace %s", j.settings.cluster, j.settings.namespace), nil
		}
		return "", err
	})
}

// next prints the next steps.
func (j *joining) next(ctx context.Context, kube kubernetes.Interface) {
	if j.agent == modeExternal {
		say(j.streams.Out, "\nStore key %[2]s of Secret %[3]s in namespace %[4]s in the file %[1]s, and start the agent with\n\n    agent %[5]s",
			bootstrapKubeconfigFile, kubeconfigKey, bootstrapSecret, j.settings.namespace, strings.Join(j.settings.arguments(), " "))
	}
	if identity := j.settings.identity; identity != nil {
		say(j.streams.Out, "\nIn AWS, the agent assumes the role %s.\nIf it does not exist yet, create it:\n", identity.ManagedClusterRoleARN())
		for _, line := range identity.Commands(oidcProvider(ctx, kube), j.settings.namespace+":"+agentName) {
			say(j.streams.Out, "    %s", line)
		}
	}
	say(j.streams.Out, "\nThe agent registers %[1]s with the hub. To accept it, run on the hub\n\n    clusteradm accept --clusters %[1]s", j.settings.cluster)
}

// oidcProvider returns the issuer of the ServiceAccount tokens of a cluster, or "" if it
// is unknown. The output then contains a placeholder.
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

// missing reports whether an object does not exist although its resource does.
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
