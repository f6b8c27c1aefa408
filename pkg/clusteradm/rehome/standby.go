package rehome

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/join"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	// standbySecret is the Secret on a managed cluster in which the agent finds the standby hub.
	standbySecret = "standby-hub-kubeconfig"
	// standbyWork is the ManifestWork that delivers it.
	standbyWork = "standby-hub"
	// standbyHub is its name in messages.
	standbyHub = "the standby hub"
)

const standbyExample = `  # On the standby hub: print a token that is valid for a year
  clusteradm get join-command --token-duration 8760h

  # On the hub: deliver it to all clusters
  clusteradm hub standby --hub-token TOKEN --hub-apiserver https://standby.example.com:6443

  # On a managed cluster, if its hub is already lost
  clusteradm hub standby --here --hub-token TOKEN --hub-apiserver https://standby.example.com:6443`

type standby struct {
	cli.Environment

	address      join.Address
	clusters     []string
	namespace    string
	here, remove bool
	timeout      time.Duration
}

func newStandby(env cli.Environment) *cobra.Command {
	s := &standby{Environment: env, namespace: manifests.AgentNamespace, timeout: program.DefaultTimeout}
	command := &cobra.Command{
		Use:   "standby",
		Short: "Name the hub to which clusters move when this hub is lost",
		Long: `Deliver the address of a standby hub, and a token to register there, to the agents of clusters. An agent moves to
the standby hub as soon as clusteradm hub adopt has adopted the cluster there, even if this hub still responds. Run the
command again for new clusters, and before the token expires.`,
		Example: standbyExample,
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&s.timeout, s.run),
	}
	flags := command.Flags()
	s.address.AddFlags(flags, standbyHub, "Required without --remove.")
	flags.StringSliceVar(&s.clusters, "clusters", nil, "Names of clusters. Defaults to all accepted clusters.")
	flags.StringVar(&s.namespace, "agent-namespace", s.namespace, "Namespace of the agents on the managed clusters.")
	flags.BoolVar(&s.here, "here", false, "Write the Secret to the cluster of the current context, which is a managed cluster.")
	flags.BoolVar(&s.remove, "remove", false, "Remove the standby hub from the clusters.")
	flags.DurationVar(&s.timeout, "timeout", s.timeout, "Maximum duration of the command.")
	return command
}

func (s *standby) complete() error {
	var errs []error
	if !s.remove {
		errs = s.address.Complete()
	}
	if s.here && len(s.clusters) > 0 {
		errs = append(errs, errors.New("--here excludes --clusters"))
	}
	return errors.Join(append(errs, cli.CheckName("agent-namespace", s.namespace))...)
}

func (s *standby) run(ctx context.Context, _ []string) error {
	if err := s.complete(); err != nil {
		return err
	}
	clients, err := s.Connect()
	if err != nil {
		return err
	}
	var secret *unstructured.Unstructured
	if !s.remove {
		if _, _, err := s.address.Check(ctx, s.Environment, standbyWork); err != nil {
			return err
		}
		if secret, err = s.address.Secret(s.namespace, standbySecret); err != nil {
			return err
		}
	}
	if s.here {
		if s.remove {
			return cli.IgnoreNotFound(clients.Kube.CoreV1().Secrets(s.namespace).Delete(ctx, standbySecret, metav1.DeleteOptions{}))
		}
		applier := manifests.NewApplier(s.Environment, clients)
		changes, err := applier.Plan(ctx, secret)
		if err != nil {
			return err
		}
		return applier.Write(ctx, changes)
	}
	return s.deliver(ctx, clients.OCM, secret)
}

func (s *standby) deliver(ctx context.Context, hub versioned.Interface, secret *unstructured.Unstructured) error {
	names := s.clusters
	if len(names) == 0 {
		clusters, err := hub.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, cluster := range clusters.Items {
			if cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp == nil {
				names = append(names, cluster.Name)
			}
		}
		if len(names) == 0 {
			return errors.New("the hub has no accepted clusters")
		}
	}
	slices.Sort(names)
	var manifest []byte
	if secret != nil {
		var err error
		if manifest, err = secret.MarshalJSON(); err != nil {
			return err
		}
	}
	names = slices.Compact(names)
	var changed atomic.Int64
	err := cli.ForEach(names, func(name string) error {
		if err := cli.Persist(ctx, func(ctx context.Context) error { return setStandby(ctx, hub, name, manifest) }); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		changed.Add(1)
		return nil
	})
	s.Say("changed the standby hub of %d of %d clusters", changed.Load(), len(names))
	return err
}

// setStandby writes the ManifestWork of a cluster, or deletes it if there is no manifest.
func setStandby(ctx context.Context, hub versioned.Interface, cluster string, manifest []byte) error {
	works := hub.WorkV1().ManifestWorks(cluster)
	if manifest == nil {
		return cli.IgnoreNotFound(works.Delete(ctx, standbyWork, metav1.DeleteOptions{}))
	}
	manifests := []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: manifest}}}
	work, err := works.Get(ctx, standbyWork, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: standbyWork}}
		work.Spec.Workload.Manifests = manifests
		_, err = works.Create(ctx, work, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	// Somebody else may have created it, with an executor or a strategy that would keep the Secret from the agent.
	work.Spec = workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: manifests}}
	_, err = works.Update(ctx, work, metav1.UpdateOptions{})
	return err
}
