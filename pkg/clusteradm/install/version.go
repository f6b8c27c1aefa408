package clusteradm

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const versionTimeout = 15 * time.Second

func newVersion(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	clientOnly := false
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this command, of the cluster, and of the server and the agents on it",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
			row := func(name, value string) { _, _ = fmt.Fprintf(table, "%s\t%s\n", name, printable(value)) }
			row("clusteradm", version.Long())
			var err error
			if !clientOnly {
				ctx, cancel := context.WithTimeout(command.Context(), versionTimeout)
				defer cancel()
				err = installedVersions(ctx, access, row)
			}
			_ = table.Flush()
			return err
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this command only, and send no request.")
	return command
}

// installedVersions calls row with what runs on the cluster and its version.
func installedVersions(ctx context.Context, access *genericclioptions.ConfigFlags, row func(name, value string)) error {
	config, err := clientConfig(access)
	if err != nil {
		return err
	}
	config.Timeout = versionTimeout
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	cluster, err := kube.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	row("cluster", "Kubernetes "+cluster.GitVersion)
	server, err := readProgram(ctx, kube, hubNamespace, serverName, serverContainer)
	if err != nil {
		return err
	}
	if server != nil {
		row("server", server.image())
	}
	agents, err := kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: agentLabel})
	if err != nil {
		return err
	}
	for i := range agents.Items {
		for _, container := range agents.Items[i].Spec.Template.Spec.Containers {
			if container.Name == agentName {
				row("agent in "+agents.Items[i].Namespace, container.Image)
			}
		}
	}
	return nil
}
