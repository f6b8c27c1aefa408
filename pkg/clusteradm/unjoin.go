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
		Short: "Have the cluster of the current context leave its hub",
		Long: `Have the cluster of the current context leave its hub: tell the hub as the cluster itself, wait
until the agent has removed what it applied, and remove the agent. The hub removes what
it has of the cluster.`,
		Example: unjoinExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return u.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&u.cluster, "cluster-name", "", "Name of this cluster on the hub. Required.")
	flags.StringVar(&u.namespace, "agent-namespace", u.namespace, "Namespace of the agent.")
	flags.StringVar(&u.hubKubeconfig, "hub-kubeconfig", "", "File with another way to the hub than the agent's own.")
	flags.BoolVar(&u.keepHub, "keep-hub", false, "Do not tell the hub, and leave on this cluster what the agent applied.")
	flags.BoolVar(&u.force, "force", false, "Go on when the hub cannot be told, or the agent does not remove what it applied.")
	flags.BoolVar(&u.purge, "purge", false, "Remove the CustomResourceDefinition of the agent's records as well, if no agent uses it.")
	flags.BoolVar(&u.purge, "purge-operator", false, "The spelling of --purge in the public clusteradm.")
	flags.DurationVar(&u.timeout, "timeout", u.timeout, "How long to wait for the agent to remove what it applied.")
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

// check finds the agent, and makes sure that it is the one of this cluster name.
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

// leave tells the hub, and waits until the agent has removed what it applied.
func (u *unjoining) leave(ctx context.Context, credentials *hubCredentials) error {
	if credentials == nil || credentials.hub == nil {
		say(u.streams.Out, "the agent has not joined the hub yet. If the hub has a ManagedCluster %[1]s, its administrator removes it: kubectl delete managedclusters.cluster.open-cluster-management.io %[1]s", u.cluster)
		return nil
	}
	if u.keepHub {
		say(u.streams.Out, "the hub is not told: it goes on taking %s for a cluster of it", u.cluster)
		return u.tellLeft(ctx, credentials)
	}
	tellCtx, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	if err := u.tell(tellCtx, credentials); err != nil {
		return fmt.Errorf("the hub %s could not be told: %w. Its administrator removes the cluster by: kubectl delete managedclusters.cluster.open-cluster-management.io %s. With --force, unjoin goes on here, and what the agent applied stays", credentials.server(), err, u.cluster)
	}
	say(u.streams.Out, "waiting until the agent has removed what it applied for the hub")
	waitCtx, cancelWait := context.WithTimeout(ctx, u.timeout)
	defer cancelWait()
	if err := poll(waitCtx, func(ctx context.Context) (string, error) {
		left, err := u.left(ctx, credentials)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return "there are still " + enumerate(left), nil
	}); err != nil {
		return fmt.Errorf("the agent has not removed everything that it applied: %w. See its log in namespace %s; it must run for that. With --force, unjoin goes on, and the rest stays", err, u.namespace)
	}
	return nil
}

// tell takes back, as the cluster itself, that the hub accepts the cluster.
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
		say(u.streams.Out, "the hub has no ManagedCluster %s any more", u.cluster)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("it does not let the cluster in any more: %w", err)
	case err != nil:
		return err
	case cluster.DeletionTimestamp != nil:
		say(u.streams.Out, "the hub is removing the ManagedCluster %s already", u.cluster)
		return nil
	case !cluster.Spec.HubAcceptsClient:
		return errors.New("it has denied the cluster, and only its deletion there has the agent remove what it applied")
	}
	if err := setNotAccepted(ctx, clusters, cluster); err != nil {
		return err
	}
	say(u.streams.Out, "the hub was told that %s leaves", u.cluster)
	return nil
}

// left are the records of what the agent applied for the hub, and the ServiceAccounts
// that it made for it.
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

// tellLeft prints what stays on the cluster.
func (u *unjoining) tellLeft(ctx context.Context, credentials *hubCredentials) error {
	left, err := u.left(ctx, credentials)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		say(u.streams.Out, "what stays on this cluster: %s", enumerate(left))
	}
	return nil
}

// enumerate names the first of many.
func enumerate(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
