package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const unjoinExample = `  # Leave the hub
  clusteradm unjoin --cluster-name cluster1

  # Leave one of several hubs
  clusteradm unjoin --cluster-name cluster1 --agent-namespace open-cluster-management-agent-other

  # The hub is gone for good
  clusteradm unjoin --cluster-name cluster1 --force`

// unjoining is the command clusteradm unjoin.
type unjoining struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	cluster       string
	namespace     string
	hubKubeconfig string
	keepHub       bool
	force         bool
	purge         bool
	timeout       time.Duration

	config  *rest.Config
	kube    kubernetes.Interface
	ocm     versioned.Interface
	install *installer
}

func newUnjoin(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	u := &unjoining{access: access, streams: streams, namespace: defaultAgentNamespace, timeout: defaultTimeout}
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
	errs := []error{checkName("cluster-name", u.cluster), checkName("agent-namespace", u.namespace)}
	if u.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout must be more than 0, not %s", u.timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var err error
	if u.config, err = clientConfig(u.access); err != nil {
		return err
	}
	if u.kube, err = kubernetes.NewForConfig(u.config); err != nil {
		return err
	}
	if u.ocm, err = versioned.NewForConfig(u.config); err != nil {
		return err
	}
	if u.install, err = newInstaller(u.config, u.streams.Out); err != nil {
		return err
	}
	credentials, err := u.check(ctx)
	if err != nil {
		return err
	}
	if err := u.leave(ctx, credentials); err != nil {
		if !u.force {
			return err
		}
		u.warn("%s", printable(err.Error()))
	}
	if err := u.remove(ctx); err != nil {
		return err
	}
	say(u.streams.Out, "\nThe cluster %s has left the hub.", u.cluster)
	return nil
}

func (u *unjoining) warn(format string, args ...any) {
	say(u.streams.ErrOut, "Warning: "+format, args...)
}

// check finds the agent, and returns an error if it belongs to another cluster name.
func (u *unjoining) check(ctx context.Context) (*hubCredentials, error) {
	credentials, err := readCredentials(ctx, u.kube, u.namespace)
	if err != nil {
		return nil, err
	}
	if credentials != nil && credentials.cluster != "" && credentials.cluster != u.cluster {
		return nil, fmt.Errorf("the agent in namespace %s is that of cluster %s, not of %s", u.namespace, printable(credentials.cluster), u.cluster)
	}
	deployment, err := u.kube.AppsV1().Deployments(u.namespace).Get(ctx, agentName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("the Deployment %s in %s: %w", agentName, u.namespace, err)
	default:
		for _, container := range deployment.Spec.Template.Spec.Containers {
			for _, arg := range container.Args {
				if name, ok := strings.CutPrefix(arg, "--cluster-name="); ok && name != u.cluster {
					return nil, fmt.Errorf("the agent in namespace %s is that of cluster %s, not of %s", u.namespace, printable(name), u.cluster)
				}
			}
		}
	}
	return credentials, nil
}

// leave revokes the acceptance on the hub, and waits until the agent has removed its
// objects.
func (u *unjoining) leave(ctx context.Context, credentials *hubCredentials) error {
	if credentials == nil || credentials.hub == nil {
		say(u.streams.Out, "the agent has not joined the hub yet. If ManagedCluster %[1]s exists on the hub, an administrator can remove it: kubectl delete managedclusters.cluster.open-cluster-management.io %[1]s", u.cluster)
		return nil
	}
	if u.keepHub {
		say(u.streams.Out, "the hub is not notified: ManagedCluster %s remains", u.cluster)
		return u.tellLeft(ctx, credentials)
	}
	tellCtx, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if err := u.tell(tellCtx, credentials); err != nil {
		return fmt.Errorf("the hub %s could not be notified: %w. An administrator can remove the cluster: kubectl delete managedclusters.cluster.open-cluster-management.io %s. With --force, unjoin continues and keeps the objects that the agent applied", credentials.server(), err, u.cluster)
	}
	say(u.streams.Out, "waiting for the agent to remove the objects that it applied")
	waitCtx, cancelWait := context.WithTimeout(ctx, u.timeout)
	defer cancelWait()
	if err := poll(waitCtx, func(ctx context.Context) (string, error) {
		left, err := u.left(ctx, credentials)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return "remaining: " + enumerate(left), nil
	}); err != nil {
		return fmt.Errorf("the agent has not removed all objects that it applied: %w. Check that it runs, and see its log in namespace %s. With --force, unjoin continues and keeps the rest", err, u.namespace)
	}
	return nil
}

// tell revokes the acceptance with the credentials of the cluster itself.
func (u *unjoining) tell(ctx context.Context, credentials *hubCredentials) error {
	var config *rest.Config
	var err error
	if u.hubKubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", u.hubKubeconfig)
	} else {
		config, err = credentials.restConfig(ctx, u.config, u.kube)
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
	case missing(err):
		say(u.streams.Out, "ManagedCluster %s does not exist on the hub", u.cluster)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("it rejects the credentials of the cluster: %w", err)
	case err != nil:
		return err
	case cluster.DeletionTimestamp != nil:
		say(u.streams.Out, "the hub already removes ManagedCluster %s", u.cluster)
		return nil
	case !cluster.Spec.HubAcceptsClient:
		return errors.New("it has denied the cluster; the agent removes the objects that it applied only after the ManagedCluster is deleted")
	}
	if err := setNotAccepted(ctx, clusters, cluster); err != nil {
		return err
	}
	say(u.streams.Out, "the hub is notified that %s leaves", u.cluster)
	return nil
}

// left returns the remaining records and ServiceAccounts of the agent for this hub.
func (u *unjoining) left(ctx context.Context, credentials *hubCredentials) ([]string, error) {
	var left []string
	records, err := u.ocm.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("AppliedManifestWorks: %w", err)
	}
	if err == nil {
		for i := range records.Items {
			if record := &records.Items[i]; record.Spec.HubHash == credentials.hubHash {
				left = append(left, "the objects of ManifestWork "+printable(record.Spec.ManifestWorkName))
			}
		}
	}
	accounts, err := u.kube.CoreV1().ServiceAccounts(accountsNamespace).List(ctx, metav1.ListOptions{LabelSelector: accountsSelector(credentials.hubHash, u.cluster)})
	if err != nil {
		return nil, fmt.Errorf("ServiceAccounts in %s: %w", accountsNamespace, err)
	}
	for i := range accounts.Items {
		left = append(left, "ServiceAccount "+accountsNamespace+"/"+accounts.Items[i].Name)
	}
	return left, nil
}

// tellLeft prints the objects that remain on the cluster.
func (u *unjoining) tellLeft(ctx context.Context, credentials *hubCredentials) error {
	left, err := u.left(ctx, credentials)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		say(u.streams.Out, "remaining on this cluster: %s", enumerate(left))
	}
	return nil
}

// enumerate lists the first of many names.
func enumerate(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
