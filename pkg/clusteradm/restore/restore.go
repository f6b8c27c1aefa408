package clusteradm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// restoring is the command clusteradm restore.
type restoring struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	all bool
}

func newRestore(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	r := &restoring{access: access, streams: streams}
	command := &cobra.Command{
		Use:   "restore",
		Short: "Complete the restore of a snapshot of the hub",
		Long: `Complete the restore of a snapshot of the hub. Agents keep the objects of ManifestWorks and
ManagedServiceAccounts that the restored hub does not know, until you confirm the restore.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(&cobra.Command{
		Use:   "list [CLUSTER...]",
		Short: "List the objects that agents keep",
		Long:  "List the objects that agents keep, as the agents of the clusters report them.",
		RunE:  func(command *cobra.Command, args []string) error { return r.list(command.Context(), args) },
	})
	confirm := &cobra.Command{
		Use:   "confirm CLUSTER... | --all",
		Short: "Let agents delete objects that the restored hub does not know",
		Long: `Let the agents of the clusters delete the objects that the restored hub does not know. To keep an
object, first create its ManifestWork or its ManagedServiceAccount again, with the same name.`,
		Example: `  clusteradm restore list
  clusteradm restore confirm cluster1 cluster2`,
		RunE: func(command *cobra.Command, args []string) error { return r.confirm(command.Context(), args) },
	}
	confirm.Flags().BoolVar(&r.all, "all", false, "Confirm for all clusters.")
	command.AddCommand(confirm)
	return command
}

// clusters returns the ManagedClusters with names, or all.
func (r *restoring) clusters(ctx context.Context, names []string) (versioned.Interface, []clusterv1.ManagedCluster, error) {
	config, err := clientConfig(r.access)
	if err != nil {
		return nil, nil, err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	list, err := client.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return client, list.Items, nil
	}
	var found []clusterv1.ManagedCluster
	for _, name := range unique(names) {
		i := slices.IndexFunc(list.Items, func(c clusterv1.ManagedCluster) bool { return c.Name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("the hub has no ManagedCluster %s", name)
		}
		found = append(found, list.Items[i])
	}
	return client, found, nil
}

func (r *restoring) list(ctx context.Context, names []string) error {
	_, clusters, err := r.clusters(ctx, names)
	if err != nil {
		return err
	}
	return printRetained(r.streams.Out, clusters)
}

// printRetained prints what the agents of clusters keep, one line for each object.
func printRetained(out io.Writer, clusters []clusterv1.ManagedCluster) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) } // Flush returns the error
	row("CLUSTER", "RESTORE", "RETAINED")
	for i := range clusters {
		cluster := &clusters[i]
		state := "Pending"
		switch {
		case cluster.Annotations[clusterv1.RestoredAnnotation] == "":
			state = "None"
		case cluster.PendingRestore() == "":
			state = "Confirmed"
		}
		retained := retainedObjects(cluster)
		if len(retained) == 0 {
			row(cluster.Name, state, "")
		}
		for _, object := range retained {
			row(cluster.Name, state, printable(object))
		}
	}
	return table.Flush()
}

// retainedObjects returns the objects that the agent of a cluster keeps, as it reports them.
func retainedObjects(cluster *clusterv1.ManagedCluster) []string {
	retained := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionObjectsRetained)
	if retained == nil || retained.Status != metav1.ConditionTrue {
		return nil
	}
	return strings.Split(retained.Message, "\n")[1:]
}

func (r *restoring) confirm(ctx context.Context, names []string) error {
	if (len(names) == 0) != r.all {
		return errors.New("name clusters, or use --all")
	}
	client, clusters, err := r.clusters(ctx, names)
	if err != nil {
		return err
	}
	var errs []error
	for i := range clusters {
		cluster := &clusters[i]
		id := cluster.PendingRestore()
		if id == "" {
			if !r.all {
				_, _ = fmt.Fprintf(r.streams.Out, "%s: there is no restore to confirm\n", cluster.Name)
			}
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": cluster.UID, "annotations": map[string]string{clusterv1.RestoreConfirmedAnnotation: id},
		}})
		if err != nil {
			return err
		}
		if _, err := client.ClusterV1().ManagedClusters().Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cluster.Name, err))
			continue
		}
		_, _ = fmt.Fprintf(r.streams.Out, "%s: confirmed; its agent deletes the objects that the hub does not know\n", cluster.Name)
	}
	return errors.Join(errs...)
}

// restoreFindings returns a finding about agents that keep objects.
func restoreFindings(clusters []clusterv1.ManagedCluster) []finding {
	const subject = "restored data"
	var keeping []string
	for i := range clusters {
		if objects := retainedObjects(&clusters[i]); len(objects) > 0 {
			keeping = append(keeping, clusters[i].Name)
		}
	}
	if len(keeping) == 0 {
		return nil
	}
	return []finding{warning(subject, "agents keep objects that the restored hub does not know: "+some(keeping),
		"run clusteradm restore list; create the ManifestWorks and accounts that must stay again, then run clusteradm restore confirm")}
}
