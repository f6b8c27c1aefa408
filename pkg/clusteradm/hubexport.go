package clusteradm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// exportTries is the number of attempts to read the hub while nobody deletes the owner of an object in between.
const exportTries = 5

// exporting is the command clusteradm hub export.
type exporting struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	timeout time.Duration
}

func newHubExport(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	e := &exporting{access: access, streams: streams, timeout: 10 * time.Minute}
	command := &cobra.Command{
		Use:   "export FILE",
		Short: "Write what another hub needs to replace this one to a file",
		Long: `Write all objects of the server, and the namespaces that contain them, to a file that only you can read. Run it
regularly: clusteradm hub adopt moves the clusters to another hub as they are in the file. The file contains no Secrets
and no private keys, but whatever manifests contain.`,
		Example: `  clusteradm hub export /backup/hub.gz`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(command *cobra.Command, args []string) error { return e.run(command.Context(), args[0]) },
	}
	command.Flags().DurationVar(&e.timeout, "timeout", e.timeout, "Maximum duration of the command.")
	return command
}

func (e *exporting) run(ctx context.Context, path string) error {
	if e.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0, not %s", e.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	config, err := clientConfig(e.access)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var a *archive
	for try := 1; ; try++ {
		if a, err = readHub(ctx, kube, client); err != nil {
			return err
		}
		orphan := orphanOf(a.objects)
		if orphan == "" {
			break
		}
		if try == exportTries {
			return fmt.Errorf("%s has an owner that does not exist, after %d attempts: wait until the hub has deleted it, and run the command again", orphan, try)
		}
	}
	a.header = archiveHeader{
		Format: archiveFormat, ID: string(uuid.NewUUID()), Time: time.Now().UTC().Truncate(time.Second), Hub: config.Host,
		Version: version.Short(), Epoch: highestEpoch(a.objects),
	}
	if err := a.write(path); err != nil {
		return err
	}
	counts := map[string]int{}
	for _, object := range a.objects {
		counts[object.GetKind()]++
	}
	for _, kind := range ExportedKinds() {
		say(e.streams.Out, "%6d %s", counts[kind.Kind], kind.Resource.GroupResource())
	}
	say(e.streams.Out, "exported to %s, with epoch %d", path, a.header.Epoch)
	return nil
}

// readHub reads all objects and their namespaces. Each kind is read at one time, and owners before dependents.
func readHub(ctx context.Context, kube kubernetes.Interface, client dynamic.Interface) (*archive, error) {
	a := &archive{}
	names := sets.New[string]()
	for _, kind := range ExportedKinds() {
		objects, err := listAll(ctx, client, kind.Resource)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			object := objects[key]
			object.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.Kind))
			a.objects = append(a.objects, object)
			if namespace := object.GetNamespace(); namespace != "" {
				names.Insert(namespace)
			}
		}
	}
	for _, name := range sets.List(names) {
		namespace, err := kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // it is being deleted
		}
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		kept := archivedNamespace{Name: name, Labels: maps.Clone(namespace.Labels), Annotations: maps.Clone(namespace.Annotations)}
		delete(kept.Labels, corev1.LabelMetadataName)
		a.namespaces = append(a.namespaces, kept)
	}
	return a, nil
}

// orphanOf returns an object whose owner is of an exported kind, but not exported, or an empty string.
func orphanOf(objects []*unstructured.Unstructured) string {
	known, kinds := sets.New[types.UID](), sets.New[schema.GroupKind]()
	for _, object := range objects {
		known.Insert(object.GetUID())
	}
	for _, kind := range ExportedKinds() {
		kinds.Insert(schema.GroupKind{Group: kind.Resource.Group, Kind: kind.Kind})
	}
	for _, object := range objects {
		for _, owner := range object.GetOwnerReferences() {
			group, err := schema.ParseGroupVersion(owner.APIVersion)
			if err == nil && kinds.Has(group.WithKind(owner.Kind).GroupKind()) && !known.Has(owner.UID) && object.GetDeletionTimestamp() == nil {
				return display(object)
			}
		}
	}
	return ""
}

func highestEpoch(objects []*unstructured.Unstructured) int64 {
	var highest int64
	for _, object := range objects {
		if object.GetKind() != kindManagedCluster {
			continue
		}
		if epoch, err := rehoming.ParseEpoch(object.GetAnnotations()[rehoming.EpochAnnotation]); err == nil {
			highest = max(highest, epoch.Number)
		}
	}
	return highest
}
