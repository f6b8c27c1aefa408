package install

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// NewVersion returns the command clusteradm version.
func NewVersion(env cli.Environment) *cobra.Command {
	clientOnly, timeout := false, 15*time.Second
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this command, of the cluster, and of the server and the agents on it",
		Args:  cobra.NoArgs,
		RunE: cli.Within(&timeout, func(ctx context.Context, _ []string) error {
			table := env.NewTable("clusteradm", version.Long())
			var err error
			if !clientOnly {
				err = addInstalled(ctx, env, table)
			}
			_ = table.Flush()
			return err
		}),
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this command only, and send no request.")
	return command
}

// addInstalled adds rows about what runs on the cluster.
func addInstalled(ctx context.Context, env cli.Environment, table cli.Table) error {
	clients, err := env.Connect()
	if err != nil {
		return err
	}
	cluster, err := discovery.ToServerVersionInterfaceWithContext(clients.Kube.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return err
	}
	table.Row("cluster", "Kubernetes "+cluster.GitVersion)
	server, err := program.Read(ctx, clients.Kube, manifests.HubNamespace, manifests.ServerName, program.ServerContainer)
	if err != nil {
		return err
	}
	if server != nil {
		table.Row("server", server.Image())
	}
	agents, err := clients.Kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: manifests.AgentLabel})
	if err != nil {
		return err
	}
	for i := range agents.Items {
		if agent, err := program.Of(&agents.Items[i], manifests.AgentName); err == nil {
			table.Row("agent in "+agent.Namespace, agent.Image())
		}
	}
	return nil
}
