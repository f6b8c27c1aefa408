package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
)

const kindLease = "Lease"

var (
	// writtenByServer are the objects that the server writes in its namespace.
	writtenByServer = []*unstructured.Unstructured{
		manifests.Named("v1", manifests.KindSecret, manifests.HubNamespace, manifests.ServingSecret),
		manifests.Named("v1", manifests.KindSecret, manifests.HubNamespace, manifests.ServingSecret+"-ca"),
		manifests.Named("coordination.k8s.io/v1", kindLease, manifests.HubNamespace, "hub-apiserver-controllers"),
		manifests.Named("coordination.k8s.io/v1", kindLease, manifests.HubNamespace, "hub-apiserver-storage"),
		manifests.Named("coordination.k8s.io/v1", kindLease, manifests.HubNamespace, "hub-apiserver-search"),
	}
	// namesOfOCM are names of objects that OCM needs too. Field managers may not show it: a forced apply of init takes over
	// the rules of a ClusterRole, and a ServiceAccount has no fields.
	namesOfOCM = append([]string{manifests.BootstrapNamespace, manifests.BootstrapAccount}, rolesOfOCM...)
	// machinery are the beginnings of the field managers that write objects of every installation.
	machinery = []string{cli.FieldManager, manifests.ServerName, "kube-", "cert-manager"}
)

type cleaning struct {
	*initializing
	yes bool
	// ocm is true if the hub has a CustomResourceDefinition of OCM, whose controllers may use the same objects.
	ocm bool
}

// NewClean returns the command clusteradm clean.
func NewClean(env cli.Environment) *cobra.Command {
	c := &cleaning{initializing: newInitializing(env)}
	command := &cobra.Command{
		Use:   "clean",
		Short: "Remove what init has installed on the hub of the current context",
		Long: `Remove what init has installed on the hub of the current context: the server with its data, its
APIServices and its roles. Objects that others have changed or need stay, and the command names them.
If it was interrupted, run it again.`,
		Args: cobra.NoArgs,
		RunE: cli.Within(&c.Timeout, func(ctx context.Context, _ []string) (err error) {
			if c.Clients, err = c.Connect(); err != nil {
				return err
			}
			return c.clean(ctx)
		}),
	}
	flags := command.Flags()
	flags.DurationVar(&c.Timeout, "timeout", program.DefaultTimeout, "Maximum duration of the command.")
	flags.BoolVar(&c.DryRun, "dry-run", false, "Print what would be deleted, and delete nothing.")
	flags.BoolVar(&c.yes, "yes", false, "Delete the server although managed clusters depend on objects that it stores. Agents keep what they have applied.")
	return command
}

func (c *cleaning) clean(ctx context.Context) error {
	if err := handover.Unfinished(ctx, c.Kube); err != nil {
		return err
	}
	c.applier = manifests.NewApplier(c.Environment, c.Clients)
	objects, err := c.rendered(ctx)
	if err != nil {
		return err
	}
	if err := c.refuseDependents(ctx, objects); err != nil {
		return err
	}
	// The arguments of the Deployment are the settings with which an interrupted command continues, so it is deleted last.
	order := map[string]int{cli.KindAPIService: -1, manifests.KindDeployment: 1, manifests.KindNamespace: 2}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return order[a.GetKind()] - order[b.GetKind()] })
	namespaces := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == manifests.KindNamespace })
	if err := c.remove(ctx, objects[:namespaces]); err != nil {
		return err
	}
	if !c.DryRun {
		// Until its Pods are gone, the server writes its objects again.
		if err := cli.WaitForNoPods(ctx, c.Kube, manifests.HubNamespace, "app="+manifests.ServerName); err != nil {
			return err
		}
	}
	return c.remove(ctx, append(slices.Clone(writtenByServer), objects[namespaces:]...))
}

// rendered returns the manifests for the installed settings. It returns an error if others manage the Deployment.
func (c *cleaning) rendered(ctx context.Context) ([]*unstructured.Unstructured, error) {
	settings := newHubSettings()
	var err error
	if c.ocm, settings.existingOCM, err = c.definition(ctx, "managedclusters", clusterv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	installed, err := readServer(ctx, c.Kube)
	if err != nil {
		return nil, err
	}
	if installed != nil {
		settings = installed.settings
		if manager := otherManager(installed); manager != "" {
			return nil, fmt.Errorf("nothing was deleted: a field manager of the Deployment %s in %s is also %s: delete it by the means that manage it, and run the command again", installed.Name, installed.Namespace, manager)
		}
	}
	return settings.objects()
}

// refuseDependents returns an error without --yes if managed clusters depend on objects that the server stores.
func (c *cleaning) refuseDependents(ctx context.Context, objects []*unstructured.Unstructured) error {
	const remedy = "Run clusteradm unjoin on accepted clusters, delete the other objects, and wait until they are gone; or move them to the CustomResourceDefinitions of OCM, which must be installed, with clusteradm migrate --to crds. With --yes, they are deleted with the server, and agents keep what they have applied"
	var counts []string
	for _, kind := range handover.Kinds {
		service, err := manifests.Find(objects, cli.KindAPIService, cli.APIServiceName(kind.Resource.GroupVersion()), nil)
		if err != nil || c.yes || !slices.Contains([]string{handover.KindManagedCluster, handover.KindManifestWork, handover.KindClusterPermission, handover.KindServiceAccount}, kind.Name) {
			continue
		}
		if live, err := c.applier.Live(ctx, service); err != nil {
			return err
		} else if serviceOf(live) != serviceOf(service) {
			continue
		}
		stored, err := handover.ListAll(ctx, c.Dynamic, kind.Resource)
		if err != nil {
			return fmt.Errorf("nothing was deleted: %w; if the server cannot return, --yes skips this check", err)
		}
		what := kind.Name + "s"
		if kind.Name == handover.KindManagedCluster {
			what = "accepted " + what
			maps.DeleteFunc(stored, func(_ string, cluster *unstructured.Unstructured) bool {
				accepted, _, _ := unstructured.NestedBool(cluster.Object, "spec", "hubAcceptsClient")
				return !accepted
			})
		}
		if len(stored) > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", len(stored), what))
		}
	}
	err := cli.Wrong(len(counts) > 0, "managed clusters depend on objects that the server stores: %s. %s", strings.Join(counts, ", "), remedy)
	if err != nil && c.DryRun {
		c.Warn("%v.", err)
		return nil
	}
	return cli.Prefix(err, "nothing was deleted")
}

// remove deletes the objects that exist. It prints those that stay, and for a dry run the others.
func (c *cleaning) remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		live, err := c.applier.Live(ctx, object)
		if err != nil {
			return err
		}
		if live == nil || live.GetDeletionTimestamp() != nil || object.GetKind() == cli.KindAPIService && serviceOf(live) != serviceOf(object) {
			continue
		}
		reason, err := c.reasonToKeep(ctx, live)
		switch {
		case err != nil:
			return err
		case reason != "":
			c.Say("%s stays: %s", manifests.Display(live), reason)
		case c.DryRun:
			c.Say("%s would be deleted", manifests.Display(live))
		default:
			if err := c.applier.Remove(ctx, live); err != nil {
				return err
			}
		}
	}
	return nil
}

// reasonToKeep returns why an object stays, or an empty string if only init and the server use it.
func (c *cleaning) reasonToKeep(ctx context.Context, live *unstructured.Unstructured) (string, error) {
	namespace := live.GetKind() == manifests.KindNamespace
	switch manager := otherManager(live); {
	case c.ocm && slices.Contains(namesOfOCM, live.GetName()):
		return "OCM needs it", nil
	case namespace && !manifests.Created(live):
		return "clusteradm did not create it", nil
	case live.GetKind() == kindLease: // of the server, whatever program has held it
		return "", nil
	case manager != "":
		return "its field manager is also " + manager, nil
	case !namespace || c.DryRun: // before the other deletions, a namespace contains their objects
		return "", nil
	}
	var lists []*metav1.APIResourceList
	settle, cancel := context.WithTimeout(ctx, 30*time.Second) // in which the hub forgets the API groups of the server
	defer cancel()
	if err := cli.Poll(settle, func(context.Context) (reason string, err error) {
		if lists, err = discovery.ServerPreferredNamespacedResources(c.Kube.Discovery()); discovery.IsGroupDiscoveryFailedError(err) {
			return err.Error(), nil
		}
		return "", err
	}); err != nil {
		return "its content is not known: " + cli.Printable(err.Error()), nil
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for _, resource := range list.APIResources {
			found, err := c.Dynamic.Resource(version.WithResource(resource.Name)).Namespace(live.GetName()).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "its content is not known: " + cli.Printable(err.Error()), nil
			}
			remains := func(object unstructured.Unstructured) bool { return !temporary(resource.Name, &object) }
			if at := slices.IndexFunc(found.Items, remains); at >= 0 {
				return "it contains " + cli.Printable(manifests.Display(&found.Items[at])), nil
			}
		}
	}
	return "", nil
}

// otherManager returns a field manager of an object that is not of this installation or of Kubernetes, or an empty string.
func otherManager(object metav1.Object) string {
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && !slices.ContainsFunc(machinery, func(start string) bool { return strings.HasPrefix(entry.Manager, start) }) {
			return cli.Printable(entry.Manager)
		}
	}
	return ""
}

// temporary reports whether Kubernetes creates an object in each namespace, or removes it with an object of the server.
func temporary(resource string, object *unstructured.Unstructured) bool {
	ofServer := func(owner metav1.OwnerReference) bool { return strings.HasPrefix(owner.Name, manifests.ServerName) }
	return object.GetDeletionTimestamp() != nil || slices.ContainsFunc(object.GetOwnerReferences(), ofServer) || resource == "endpoints" || resource == "events" ||
		resource == "configmaps" && object.GetName() == "kube-root-ca.crt" || resource == "serviceaccounts" && object.GetName() == "default"
}
