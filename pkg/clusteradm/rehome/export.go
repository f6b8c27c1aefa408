package rehome

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// exportTries is the number of attempts to read the hub while nobody creates or deletes the owner of an object in between.
const exportTries = 3

func newExport(env cli.Environment) *cobra.Command {
	timeout := 10 * time.Minute
	command := &cobra.Command{
		Use:   "export FILE",
		Short: "Export the hub to a file from which another hub can replace it",
		Long: `Write all objects of the server, and the namespaces that contain them, to a file that only you can read. Run it
regularly: clusteradm hub adopt moves the clusters to another hub as they are in the file. The file contains no
private keys, and no Secrets except those in manifests.`,
		Example: `  clusteradm hub export /backup/hub.gz`,
		Args:    cobra.ExactArgs(1),
		RunE:    cli.Within(&timeout, func(ctx context.Context, args []string) error { return export(ctx, env, args[0]) }),
	}
	command.Flags().DurationVar(&timeout, "timeout", timeout, "Maximum duration of the command.")
	return command
}

func export(ctx context.Context, env cli.Environment, path string) error {
	clients, err := env.Connect()
	if err != nil {
		return err
	}
	var a *archive
	var findings []cli.Finding
	for try := 1; ; try++ {
		if a, err = readHub(ctx, clients); err != nil {
			return err
		}
		if a.Objects, findings = withoutOrphans(a.Objects); len(findings) == 0 || try == exportTries {
			break
		}
	}
	epoch, doubts, err := hubEpoch(ctx, clients.Kube, a.Objects)
	if err != nil {
		return err
	}
	a.Format, a.ID, a.Time = archiveFormat, string(uuid.NewUUID()), time.Now().UTC().Truncate(time.Second)
	a.Hub, a.Version, a.Epoch = clients.Config.Host, version.Short(), epoch
	if err := a.write(path); err != nil {
		return err
	}
	printCounts(env, a.Objects)
	env.Say("exported to %s, with epoch %d", path, a.Epoch)
	return env.Refuse(append(findings, doubts...))
}

// printCounts prints the number of objects of each kind.
func printCounts(env cli.Environment, objects []*unstructured.Unstructured) {
	counts := map[string]int{}
	for _, object := range objects {
		counts[object.GetKind()]++
	}
	for _, kind := range handover.Kinds {
		env.Say("%6d %s", counts[kind.Name], kind.Resource.GroupResource())
	}
}

// readHub reads all objects and their namespaces. Each kind is read at one time, and owners before dependents.
func readHub(ctx context.Context, clients *cli.Clients) (*archive, error) {
	a := &archive{}
	names := sets.New[string]()
	for _, kind := range handover.Kinds {
		objects, err := handover.ListAll(ctx, clients.Dynamic, kind.Resource)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			object := objects[key]
			object.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.Name))
			a.Objects = append(a.Objects, object)
			if namespace := object.GetNamespace(); namespace != "" {
				names.Insert(namespace)
			}
		}
	}
	for _, name := range sets.List(names) {
		namespace, err := cli.Optional(clients.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		if namespace == nil {
			continue // it is being deleted
		}
		kept := archivedNamespace{Name: name, Labels: maps.Clone(namespace.Labels), Annotations: maps.Clone(namespace.Annotations)}
		delete(kept.Labels, corev1.LabelMetadataName)
		a.Namespaces = append(a.Namespaces, kept)
	}
	return a, nil
}

// withoutOrphans returns the objects without those whose owners are all of exported kinds and not exported, with a finding
// for each that it leaves out. The garbage collector of the hub deletes these, or would if their owners were of a version
// that the hub serves. The hub that adopts the others would keep them without owners.
func withoutOrphans(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, []cli.Finding) {
	known, kinds := sets.New[types.UID](), sets.New[schema.GroupKind]()
	for _, object := range objects {
		known.Insert(object.GetUID())
	}
	for _, kind := range handover.Kinds {
		kinds.Insert(schema.GroupKind{Group: kind.Resource.Group, Kind: kind.Name})
	}
	missing := func(owner metav1.OwnerReference) bool {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		return err == nil && kinds.Has(group.WithKind(owner.Kind).GroupKind()) && !known.Has(owner.UID)
	}
	var findings []cli.Finding
	for more := true; more; {
		more = false
		objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
			owners := object.GetOwnerReferences()
			if len(owners) == 0 || object.GetDeletionTimestamp() != nil || !known.Has(object.GetUID()) ||
				slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return !missing(owner) }) {
				return false
			}
			findings = append(findings, cli.Warning(manifests.Display(object), fmt.Sprintf("it is not exported, because its owner %s %.253s does not exist", owners[0].Kind, owners[0].Name),
				"remove the owner reference if the object must stay, and export again"))
			known.Delete(object.GetUID())
			more = true
			return true
		})
	}
	return objects, findings
}

// hubEpoch returns the epoch of the hub: that of its adoption, or else the highest of its clusters, and a finding for each
// cluster whose epoch it does not believe. Only the record of an adoption is out of reach of all clusters.
func hubEpoch(ctx context.Context, kube kubernetes.Interface, objects []*unstructured.Unstructured) (int64, []cli.Finding, error) {
	epoch, doubts, err := handover.AdoptedEpoch(ctx, kube)
	if err != nil || epoch != (rehoming.Epoch{}) {
		return epoch.Number, nil, err
	}
	highest, findings := highestEpoch(objects)
	return highest, append(findings, doubts...), nil
}

// highestEpoch returns the highest epoch of the accepted clusters. Anybody with a bootstrap token creates others.
func highestEpoch(objects []*unstructured.Unstructured) (int64, []cli.Finding) {
	var highest int64
	var findings []cli.Finding
	for _, object := range objects {
		if accepted, _, _ := unstructured.NestedBool(object.Object, "spec", "hubAcceptsClient"); object.GetKind() != handover.KindManagedCluster || !accepted {
			continue
		}
		epoch, err := rehoming.ParseEpoch(object.GetAnnotations()[rehoming.EpochAnnotation])
		if err == nil {
			_, err = rehoming.NextEpoch(epoch.Number)
		}
		if err != nil {
			findings = append(findings, cli.Warning(manifests.Display(object), fmt.Sprintf("its epoch is ignored: annotation %s: %v", rehoming.EpochAnnotation, err), "if an agent has recorded a higher epoch, use --epoch with hub adopt"))
			continue
		}
		highest = max(highest, epoch.Number)
	}
	return highest, findings
}
