// Package command contains the command of the API server.
package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/options"
	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// New returns the command that runs the API server.
func New() *cobra.Command {
	o := options.New()
	command := &cobra.Command{
		Use:   "apiserver",
		Short: "Serve the APIs of an Open Cluster Management hub",
		Long: `Serve the APIs of an Open Cluster Management hub as an aggregated API server of a
Kubernetes cluster: cluster permissions, managed service accounts, manifest works,
managed clusters, add-ons and fleet search.`,
		Version:      version.Long(),
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			// This sets the feature gates.
			if err := o.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
				return err
			}
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := completed.Validate(); err != nil {
				return err
			}
			return run(command.Context(), completed)
		},
	}
	command.AddCommand(newSnapshot())
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, sets, columns)
	return command
}

func run(ctx context.Context, o options.Completed) (err error) {
	klog.FromContext(ctx).Info("Starting hub-apiserver", "version", version.Long())
	reconcile.IgnoreCanceled()
	if err := keepalive.Use(); err != nil {
		return err
	}
	var embedded *etcd.Server
	if o.Embedded() {
		embedded, err = etcd.Start(ctx, o.EmbeddedEtcd)
		if err != nil {
			return fmt.Errorf("embedded etcd: %w", err)
		}
		defer embedded.Stop()
	}
	config, err := o.Config(embedded)
	if err != nil {
		return err
	}
	completed := config.Complete()
	data, err := completed.AwaitData(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it waits
		}
		return err
	}
	server, err := completed.New(data)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
