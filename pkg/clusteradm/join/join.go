package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
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

type joining struct {
	cli.Environment
	*cli.Clients

	address    Address
	auth       []string
	hubARN     string
	managedARN string
	agent      string
	settings   agentSettings

	program.Options
	// installed is the agent that the cluster runs, or nil if it has no Deployment.
	installed *installedAgent
	// joined are the credentials of the agent, or nil if it has none.
	joined *Credentials
	// keepSecret is true if the bootstrap Secret stays as it is, or stays absent.
	keepSecret bool
	// kept are the settings of the installed agent, if it authenticates by the same IAM role.
	kept *agentSettings
}

func newJoining(env cli.Environment) *joining {
	return &joining{Environment: env, auth: []string{string(program.DefaultDriver)}, agent: program.Deploy, settings: agentSettings{namespace: manifests.AgentNamespace}}
}

// New returns the command clusteradm join.
func New(env cli.Environment) *cobra.Command {
	j := newJoining(env)
	command := &cobra.Command{
		Use:   "join",
		Short: "Join the cluster of the current context to a hub",
		Long: `Join the cluster of the current context to a hub: install the agent with the credentials to
register. Then accept the cluster on the hub with clusteradm accept. If the agent is installed, the
command changes only settings that its flags name, and the cluster keeps its identity. Changes of fields that
others have set, and bindings that somebody has deleted, require --yes.`,
		Example: joinExample,
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&j.Timeout, j.run),
	}
	flags := command.Flags()
	const required = "Required unless the agent is installed."
	j.address.AddFlags(flags, "the hub", required)
	flags.StringVar(&j.settings.cluster, "cluster-name", "", "Name of this cluster on the hub. "+required)
	flags.StringSliceVar(&j.auth, "registration-auth", j.auth, "Registration driver by which the agent authenticates: csr or aws-irsa.")
	flags.StringVar(&j.hubARN, "eks-hub-cluster-arn", "", "ARN of the hub, as in --hub-cluster-arn of init. Required with aws-irsa.")
	flags.StringVar(&j.hubARN, "hub-cluster-arn", "", "Same as --eks-hub-cluster-arn.")
	flags.StringVar(&j.managedARN, "managed-cluster-arn", "", "ARN of this EKS cluster, for aws-irsa. Defaults to the name of the cluster in the kubeconfig if it is an ARN.")
	j.settings.resources.AddFlags(flags, "agent")
	flags.StringVar(&j.agent, "agent", j.agent, "deploy runs the agent on this cluster. external installs all objects except its Deployment, for an agent that runs elsewhere.")
	j.addFlags(flags, "Wait until the agent has registered with the hub.")
	return command
}

// NewUpgrade returns the command clusteradm upgrade agent.
func NewUpgrade(env cli.Environment) *cobra.Command {
	j := newJoining(env)
	j.Upgrade = true
	command := &cobra.Command{
		Use:     "agent",
		Aliases: []string{"klusterlet"},
		Short:   "Upgrade the agent on the managed cluster of the current context",
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&j.Timeout, j.run),
	}
	j.addFlags(command.Flags(), "Wait until the agent is available.")
	return command
}

func (j *joining) addFlags(flags *pflag.FlagSet, wait string) {
	j.settings.image.AddFlags(flags, "agent")
	flags.StringVar(&j.settings.namespace, "agent-namespace", j.settings.namespace, "Namespace of the agent. Each hub requires its own namespace.")
	j.AddFlags(flags, "agent", wait)
}

func (j *joining) complete() error {
	errs := j.settings.resources.Check()
	if !j.keepSecret {
		errs = append(errs, j.address.Complete()...)
	}
	drivers, err := program.ParseDrivers(j.auth)
	switch {
	case err != nil:
	case len(drivers) > 1:
		err = errors.New("--registration-auth must be a single driver")
	case drivers[0] == registerv1alpha1.DriverAWSIRSA:
		err = j.completeAWS()
	case j.hubARN != "" || j.managedARN != "":
		err = fmt.Errorf("--eks-hub-cluster-arn and --managed-cluster-arn require --registration-auth=%s", registerv1alpha1.DriverAWSIRSA)
	}
	errs = append(errs, err, cli.CheckName("cluster-name", j.settings.cluster), cli.CheckName("agent-namespace", j.settings.namespace),
		cli.OneOf("agent", j.agent, program.Deploy, program.External))
	if len(drivers) > 0 {
		j.settings.driver = drivers[0]
	}
	if j.agent == program.Deploy {
		errs = append(errs, j.Choose(&j.settings.image, manifests.AgentImage))
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
	managed, err := program.ClusterARN(j.ConfigFlags, "managed-cluster-arn", j.managedARN)
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

func (j *joining) run(ctx context.Context, _ []string) error {
	var err error
	if err = cli.CheckName("agent-namespace", j.settings.namespace); err != nil {
		return j.complete()
	}
	if j.Clients, err = j.Connect(); err == nil {
		j.installed, err = readAgent(ctx, j.Kube, j.settings.namespace)
	}
	if err != nil {
		return errors.Join(j.complete(), err)
	}
	if j.installed == nil && j.Upgrade {
		return fmt.Errorf("the cluster has no Deployment %s in %s: upgrade the agent where it runs, or set --agent-namespace", manifests.AgentName, j.settings.namespace)
	}
	if err := j.keep(ctx); err != nil {
		return err
	}
	if err := j.complete(); err != nil {
		return err
	}
	if err := j.sameCluster(); err != nil {
		return err
	}
	if j.settings.noWorks, err = j.Forwards(ctx, workv1.SchemeGroupVersion); err != nil {
		return err
	}
	if j.settings.noWorks && (j.installed == nil || !j.installed.settings.noWorks) {
		j.Warn("this cluster is a hub, which serves the API group of AppliedManifestWorks itself. The agent has no place for its records: it gets --works=false, and applies no ManifestWorks of %s.", j.settings.cluster)
	}
	var hub versioned.Interface
	if !j.keepSecret {
		if hub, err = j.checkHub(ctx); err != nil {
			return err
		}
	}
	objects, err := j.objects()
	if err != nil {
		return err
	}
	applier := manifests.NewApplier(j.Environment, j.Clients)
	changes, err := applier.Plan(ctx, objects...)
	if err != nil {
		return err
	}
	if err := j.Confirm(j.Environment, changes, j.reasons(objects, changes)); err != nil || j.DryRun {
		return err
	}
	if err := applier.Write(ctx, changes); err != nil {
		return err
	}
	if j.Wait {
		if err := j.await(ctx, hub); err != nil {
			return err
		}
	}
	if !j.Upgrade {
		j.next(ctx)
	}
	return nil
}

// checkHub returns a client of the hub that uses the token. It sets the Secret for the agent.
func (j *joining) checkHub(ctx context.Context) (versioned.Interface, error) {
	hub, exists, err := j.address.Check(ctx, j.Environment, j.settings.cluster)
	if err != nil {
		return nil, err
	}
	if exists && j.joined == nil {
		j.Warn("ManagedCluster %s already exists on the hub. If it is not this cluster, choose another --cluster-name: the hub cannot distinguish them.", j.settings.cluster)
	}
	j.settings.secret, err = j.address.Secret(j.settings.namespace, BootstrapSecret)
	return hub, err
}

func (j *joining) objects() ([]*unstructured.Unstructured, error) {
	objects, err := j.settings.objects(j.agent == program.Deploy)
	if err != nil || j.installed == nil || j.Reset || j.agent != program.Deploy {
		return objects, err
	}
	before, err := j.installed.settings.objects(true)
	if err != nil {
		return nil, err
	}
	return objects, j.installed.Keep(objects, before, &j.settings.resources, j.installed.settings.arguments())
}

// reasons returns the changes of an installed agent that require a confirmation.
func (j *joining) reasons(objects []*unstructured.Unstructured, changes []manifests.Change) []string {
	var reasons []string
	if j.installed == nil && j.joined == nil {
		return nil
	}
	for _, c := range changes {
		// An administrator may have deleted it to restrict what the hub may do.
		if c.Live == nil && manifests.IsBinding(c.Manifest) {
			reasons = append(reasons, fmt.Sprintf("%s does not exist: it would be created, and grant its role to the agent", manifests.Display(c.Manifest)))
		}
	}
	if j.installed != nil && j.agent == program.Deploy {
		reasons = append(reasons, j.installed.ReplicasChange(objects, "agent")...)
	}
	return reasons
}

// sameCluster returns an error if the agent is that of another cluster. It warns if its hub has another address.
func (j *joining) sameCluster() error {
	if j.joined == nil {
		return nil
	}
	if name := j.joined.Cluster; name != "" && name != j.settings.cluster {
		return fmt.Errorf("the agent in namespace %s is registered as cluster %s. Run clusteradm unjoin --cluster-name %s first, or join another hub with another --agent-namespace", j.settings.namespace, cli.Printable(name), cli.Printable(name))
	}
	if server, _ := j.joined.server(); server != "" && server != j.address.server && !j.keepSecret {
		j.Warn("the agent in namespace %s has joined the hub %s and uses %s as another address of the same hub. If it is a different hub, choose another --agent-namespace.", j.settings.namespace, cli.Printable(server), j.address.server)
	}
	return nil
}

// await waits until the ManagedCluster exists on the hub, or until the agent is available if it keeps its Secret.
func (j *joining) await(ctx context.Context, hub versioned.Interface) error {
	if j.keepSecret {
		j.Say("waiting for the agent")
		return j.WaitForDeployment(ctx, j.Kube, j.settings.namespace, manifests.AgentName)
	}
	j.Say("waiting for the agent to register with the hub")
	if j.agent == program.Deploy {
		if err := cli.Poll(ctx, func(ctx context.Context) (string, error) {
			deployment, err := j.Kube.AppsV1().Deployments(j.settings.namespace).Get(ctx, manifests.AgentName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			// The agent becomes ready only after the hub has accepted the cluster.
			if deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.UpdatedReplicas == 0 {
				return fmt.Sprintf("Deployment %s in %s has no Pod", manifests.AgentName, j.settings.namespace), nil
			}
			return "", nil
		}); err != nil {
			return err
		}
	}
	return cli.Poll(ctx, func(ctx context.Context) (string, error) {
		_, err := hub.ClusterV1().ManagedClusters().Get(ctx, j.settings.cluster, metav1.GetOptions{})
		if cli.Missing(err) {
			return fmt.Sprintf("ManagedCluster %s does not exist on the hub yet; see the log of the agent in namespace %s", j.settings.cluster, j.settings.namespace), nil
		}
		return "", err
	})
}

func (j *joining) next(ctx context.Context) {
	if j.agent == program.External {
		j.Say("\nStore key %[2]s of Secret %[3]s in namespace %[4]s in the file %[1]s, and start the agent with\n\n    agent %[5]s",
			bootstrapKubeconfigFile, manifests.KubeconfigKey, BootstrapSecret, j.settings.namespace, strings.Join(j.settings.arguments(), " "))
	}
	if identity := j.settings.identity; identity != nil {
		j.Say("\nIn AWS, the agent assumes the role %s.\nIf it does not exist yet, create it:\n", identity.ManagedClusterRoleARN())
		for _, line := range identity.Commands(oidcProvider(ctx, j.Kube), j.settings.namespace+":"+manifests.AgentName) {
			j.Say("    %s", line)
		}
	}
	j.Say("\nThe agent registers %[1]s with the hub. To accept it, run on the hub\n\n    clusteradm accept --clusters %[1]s", j.settings.cluster)
}

// oidcProvider returns the issuer of the ServiceAccount tokens of a cluster, or "" if it is unknown.
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
