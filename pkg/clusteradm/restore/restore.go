// Package restore contains the command that completes the restore of a snapshot of a hub.
package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

type restoring struct {
	cli.Environment
	*cli.Clients
	all bool
}

// New returns the command clusteradm restore.
func New(env cli.Environment) *cobra.Command {
	r := &restoring{Environment: env}
	list := &cobra.Command{
		Use:   "list [CLUSTER...]",
		Short: "List the objects that agents keep",
		Long:  "List the objects that agents keep, as the agents of the clusters report them.",
		RunE: func(command *cobra.Command, args []string) error {
			clusters, err := r.clusters(command.Context(), args)
			if err != nil {
				return err
			}
			return r.print(clusters)
		},
	}
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
	return cli.Group("restore", "Complete the restore of a snapshot of the hub", `Complete the restore of a snapshot of the hub. Agents keep the objects of ManifestWorks and
ManagedServiceAccounts that the restored hub does not know, until you confirm the restore.`, list, confirm)
}

func (r *restoring) clusters(ctx context.Context, names []string) (found []clusterv1.ManagedCluster, err error) {
	if r.Clients, err = r.Connect(); err != nil {
		return nil, err
	}
	client := r.OCM.ClusterV1().ManagedClusters()
	if len(names) == 0 {
		list, err := client.List(ctx, metav1.ListOptions{})
		return list.Items, err
	}
	for _, name := range sets.List(sets.New(names...)) {
		cluster, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		found = append(found, *cluster)
	}
	return found, nil
}

// print prints what the agents of clusters keep, one line for each object.
func (r *restoring) print(clusters []clusterv1.ManagedCluster) error {
	table := r.NewTable("CLUSTER", "RESTORE", "RETAINED")
	for i := range clusters {
		cluster := &clusters[i]
		state := "Pending"
		switch {
		case cluster.Annotations[clusterv1.RestoredAnnotation] == "":
			state = "None"
		case cluster.PendingRestore() == "":
			state = "Confirmed"
		}
		retained := Retained(cluster)
		if len(retained) == 0 {
			table.Row(cluster.Name, state, "")
		}
		for _, object := range retained {
			table.Row(cluster.Name, state, object)
		}
	}
	return table.Flush()
}

// Retained returns the objects that the agent of a cluster keeps, as it reports them.
func Retained(cluster *clusterv1.ManagedCluster) []string {
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
	clusters, err := r.clusters(ctx, names)
	if err != nil {
		return err
	}
	var errs []error
	for i := range clusters {
		cluster := &clusters[i]
		id := cluster.PendingRestore()
		if id == "" {
			if !r.all {
				r.Say("%s: there is no restore to confirm", cluster.Name)
			}
			continue
		}
		patch := cli.MergePatch(map[string]any{"metadata": map[string]any{
			"uid": cluster.UID, "annotations": map[string]string{clusterv1.RestoreConfirmedAnnotation: id},
		}})
		if _, err := r.OCM.ClusterV1().ManagedClusters().Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cluster.Name, err))
			continue
		}
		r.Say("%s: confirmed; its agent deletes the objects that the hub does not know", cluster.Name)
	}
	return errors.Join(errs...)
}
