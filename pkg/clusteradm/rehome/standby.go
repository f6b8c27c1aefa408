package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
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

// standby is the command clusteradm hub standby.
type standby struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	address      hubAddress
	clusters     []string
	namespace    string
	here, remove bool
	timeout      time.Duration
}

func newHubStandby(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	s := &standby{access: access, streams: streams, namespace: defaultAgentNamespace, timeout: defaultTimeout}
	command := &cobra.Command{
		Use:   "standby",
		Short: "Name the hub to which clusters move when this hub is lost",
		Long: `Deliver the address of a standby hub, and a token to register there, to the agents of clusters. An agent moves to
the standby hub as soon as that has adopted the cluster with clusteradm hub adopt, whether this hub lives or not. Run the
command again for new clusters, and before the token expires.`,
		Example: standbyExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return s.run(command.Context()) },
	}
	flags := command.Flags()
	s.address.addFlags(flags, standbyHub, "Required without --remove.")
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
		errs = s.address.complete(standbyHub)
	}
	if s.here && len(s.clusters) > 0 {
		errs = append(errs, errors.New("--here excludes --clusters"))
	}
	if s.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout must be more than 0, not %s", s.timeout))
	}
	return errors.Join(append(errs, checkName("agent-namespace", s.namespace))...)
}

func (s *standby) run(ctx context.Context) error {
	if err := s.complete(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	config, err := clientConfig(s.access)
	if err != nil {
		return err
	}
	var secret *unstructured.Unstructured
	if !s.remove {
		if secret, err = s.secret(ctx); err != nil {
			return err
		}
	}
	if s.here {
		install, err := newInstaller(config, s.streams.Out)
		if err != nil {
			return err
		}
		if !s.remove {
			return install.apply(ctx, secret)
		}
		err = install.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(s.namespace).Delete(ctx, standbySecret, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	hub, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	return s.deliver(ctx, hub, secret)
}

// secret returns the Secret for the agents. It checks the address and the token, if this machine reaches the hub.
func (s *standby) secret(ctx context.Context) (*unstructured.Unstructured, error) {
	within, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	client, err := s.address.client(within, standbyHub, func(format string, args ...any) { say(s.streams.ErrOut, "Warning: "+format, args...) })
	if err != nil {
		return nil, err
	}
	_, err = client.ClusterV1().ManagedClusters().Get(within, standbyWork, metav1.GetOptions{})
	switch {
	case err == nil || missing(err):
	case apierrors.IsUnauthorized(err):
		return nil, s.address.rejected(standbyHub)
	case isCertificateError(err):
		return nil, fmt.Errorf("standby hub %s: %w", s.address.server, err)
	default:
		say(s.streams.ErrOut, "Warning: the standby hub was not checked: %s", printable(err.Error()))
	}
	kubeconfig, err := bootstrapKubeconfig(s.address.server, s.address.token, s.address.ca)
	if err != nil {
		return nil, err
	}
	return toUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: standbySecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{kubeconfigKey: kubeconfig},
	})
}

// deliver writes or deletes the ManifestWorks.
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
	err := forEach(names, func(name string) error {
		if err := persist(ctx, func(ctx context.Context) error { return setStandby(ctx, hub, name, manifest) }); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		changed.Add(1)
		return nil
	})
	say(s.streams.Out, "changed the standby hub of %d of %d clusters", changed.Load(), len(names))
	return err
}

// setStandby writes the ManifestWork of a cluster, or deletes it if there is no manifest.
func setStandby(ctx context.Context, hub versioned.Interface, cluster string, manifest []byte) error {
	works := hub.WorkV1().ManifestWorks(cluster)
	if manifest == nil {
		err := works.Delete(ctx, standbyWork, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
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
