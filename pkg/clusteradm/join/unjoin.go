package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const unjoinExample = `  # Leave the hub
  clusteradm unjoin --cluster-name cluster1

  # Leave one of several hubs
  clusteradm unjoin --cluster-name cluster1 --agent-namespace open-cluster-management-agent-other

  # The hub is gone permanently
  clusteradm unjoin --cluster-name cluster1 --force`

type unjoining struct {
	cli.Environment
	*cli.Clients
	applier *manifests.Applier

	cluster       string
	namespace     string
	hubKubeconfig string
	keepHub       bool
	force         bool
	purge         bool
	timeout       time.Duration
}

// NewUnjoin returns the command clusteradm unjoin.
func NewUnjoin(env cli.Environment) *cobra.Command {
	u := &unjoining{Environment: env, namespace: manifests.AgentNamespace, timeout: program.DefaultTimeout}
	command := &cobra.Command{
		Use:   "unjoin",
		Short: "Remove the cluster of the current context from its hub",
		Long: `Remove the cluster of the current context from its hub: notify the hub with the identity of the
cluster, wait until the agent has removed the objects that it applied, and remove the agent. The hub
removes its objects of the cluster.`,
		Example: unjoinExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return u.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&u.cluster, "cluster-name", "", "Name of this cluster on the hub. Required.")
	flags.StringVar(&u.namespace, "agent-namespace", u.namespace, "Namespace of the agent.")
	flags.StringVar(&u.hubKubeconfig, "hub-kubeconfig", "", "Kubeconfig file for the hub, in place of the agent's credentials.")
	flags.BoolVar(&u.keepHub, "keep-hub", false, "Do not notify the hub, and keep the objects that the agent applied.")
	flags.BoolVar(&u.force, "force", false, "Continue if the hub cannot be notified, or if the agent does not remove the objects that it applied.")
	flags.BoolVar(&u.purge, "purge", false, "Also remove the CustomResourceDefinition of AppliedManifestWorks, if no other agent uses it.")
	flags.BoolVar(&u.purge, "purge-operator", false, "Same as --purge, for compatibility with the OCM clusteradm.")
	flags.DurationVar(&u.timeout, "timeout", u.timeout, "Time within which the agent must remove the objects that it applied.")
	return command
}

func (u *unjoining) run(ctx context.Context) error {
	err := errors.Join(cli.CheckName("cluster-name", u.cluster), cli.CheckName("agent-namespace", u.namespace),
		cli.Wrong(u.timeout <= 0, "--timeout must be more than 0, not %s", u.timeout))
	if err != nil {
		return err
	}
	if u.Clients, err = u.Connect(); err != nil {
		return err
	}
	u.applier = manifests.NewApplier(u.Environment, u.Clients)
	credentials, err := u.check(ctx)
	if err != nil {
		return err
	}
	if err := u.leave(ctx, credentials); err != nil {
		if !u.force {
			return err
		}
		u.Warn("%s", cli.Printable(err.Error()))
	}
	if err := u.remove(ctx); err != nil {
		return err
	}
	u.Say("\nThe cluster %s has left the hub.", u.cluster)
	return nil
}

// check finds the agent, and returns an error if it belongs to another cluster name.
func (u *unjoining) check(ctx context.Context) (*Credentials, error) {
	credentials, err := ReadCredentials(ctx, u.Kube, u.namespace, HubSecret)
	if err != nil {
		return nil, err
	}
	installed, err := program.Read(ctx, u.Kube, u.namespace, manifests.AgentName, manifests.AgentName)
	if err != nil {
		return nil, err
	}
	var names []string
	if credentials != nil {
		names = append(names, credentials.Cluster)
	}
	if installed != nil {
		names = append(names, installed.Value("cluster-name", ""))
	}
	for _, name := range names {
		if name != "" && name != u.cluster {
			return nil, fmt.Errorf("the agent in namespace %s is that of cluster %s, not of %s", u.namespace, cli.Printable(name), u.cluster)
		}
	}
	return credentials, nil
}

// leave revokes the acceptance on the hub, and waits until the agent has removed its objects.
func (u *unjoining) leave(ctx context.Context, credentials *Credentials) error {
	if !credentials.Complete() {
		u.Say("the agent has not joined the hub yet. If ManagedCluster %[1]s exists on the hub, an administrator can remove it: kubectl delete managedclusters.cluster.open-cluster-management.io %[1]s", u.cluster)
		return nil
	}
	if u.keepHub {
		u.Say("the hub is not notified: ManagedCluster %s remains", u.cluster)
		left, err := u.left(ctx, credentials)
		if len(left) > 0 {
			u.Say("remaining on this cluster: %s", cli.Some(left))
		}
		return err
	}
	tellCtx, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if err := u.tell(tellCtx, credentials); err != nil {
		return fmt.Errorf("the hub %s could not be notified: %w. An administrator can remove the cluster: kubectl delete managedclusters.cluster.open-cluster-management.io %s. With --force, unjoin continues and keeps the objects that the agent applied", credentials.hub.Server, err, u.cluster)
	}
	u.Say("waiting for the agent to remove the objects that it applied")
	waitCtx, cancelWait := context.WithTimeout(ctx, u.timeout)
	defer cancelWait()
	if err := cli.Poll(waitCtx, func(ctx context.Context) (string, error) {
		left, err := u.left(ctx, credentials)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return "remaining: " + cli.Some(left), nil
	}); err != nil {
		return fmt.Errorf("the agent has not removed all objects that it applied: %w. Check that it runs, and see its log in namespace %s. With --force, unjoin continues and keeps the rest", err, u.namespace)
	}
	return nil
}

func (u *unjoining) tell(ctx context.Context, credentials *Credentials) error {
	var config *rest.Config
	var err error
	if u.hubKubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", u.hubKubeconfig)
	} else {
		config, err = credentials.Config(ctx, u.Clients)
	}
	if err != nil {
		return err
	}
	hub, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	clusters := hub.ClusterV1().ManagedClusters()
	cluster, err := clusters.Get(ctx, u.cluster, metav1.GetOptions{})
	switch {
	case cli.Missing(err):
		u.Say("ManagedCluster %s does not exist on the hub", u.cluster)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("it rejects the credentials of the cluster: %w", err)
	case err != nil:
		return err
	case cluster.DeletionTimestamp != nil:
		u.Say("the hub already removes ManagedCluster %s", u.cluster)
		return nil
	case !cluster.Spec.HubAcceptsClient:
		return errors.New("it has denied the cluster; the agent removes the objects that it applied only after the ManagedCluster is deleted")
	}
	if err := setNotAccepted(ctx, clusters, cluster); err != nil {
		return err
	}
	u.Say("the hub is notified that %s leaves", u.cluster)
	return nil
}

// left returns the remaining records and ServiceAccounts of the agent for this hub.
func (u *unjoining) left(ctx context.Context, credentials *Credentials) ([]string, error) {
	var left []string
	records, err := u.OCM.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if cli.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("AppliedManifestWorks: %w", err)
	}
	for i := range records.Items {
		if record := &records.Items[i]; record.Spec.HubHash == credentials.hubHash {
			left = append(left, "the objects of ManifestWork "+cli.Printable(record.Spec.ManifestWorkName))
		}
	}
	accounts, err := u.Kube.CoreV1().ServiceAccounts(accountsNamespace).List(ctx, metav1.ListOptions{LabelSelector: accountsSelector(credentials.hubHash, u.cluster)})
	if err != nil {
		return nil, fmt.Errorf("ServiceAccounts in %s: %w", accountsNamespace, err)
	}
	for i := range accounts.Items {
		left = append(left, "ServiceAccount "+accountsNamespace+"/"+accounts.Items[i].Name)
	}
	return left, nil
}
