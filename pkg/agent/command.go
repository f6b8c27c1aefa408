package agent

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// NewCommand returns the command of the agent. The command ends on SIGTERM and SIGINT.
func NewCommand() *cobra.Command {
	options := NewOptions()
	command := &cobra.Command{
		Use:   "agent",
		Short: "Applies ManifestWorks and keeps ManagedServiceAccounts on one managed cluster",
		Long: `The agent runs on, or next to, a managed cluster. It registers the cluster with
the hub and renews its credentials. It applies the ManifestWorks in the
namespace of the cluster on the hub, corrects drift of the applied objects,
removes objects that no longer have a manifest, and reports the state to the
hub. It also keeps the ServiceAccounts of ManagedServiceAccounts and their
tokens on the hub, and reports the resources of the cluster for searches.`,
		Version:       version.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(options.Logs, nil); err != nil {
				return err
			}
			if err := options.Validate(); err != nil {
				return err
			}
			applyMetrics(options.Metrics)
			reconcile.IgnoreCanceled()
			if err := keepalive.Use(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return run(ctx, options)
		},
	}
	flags := options.Flags()
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name())
	for _, set := range flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	width, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, flags, width)
	command.AddCommand(newTokenCommand())
	command.SetContext(context.Background())
	return command
}

// applyMetrics configures metrics. Without a list of allowed labels, Options.Apply logs an error about the list.
func applyMetrics(o *metrics.Options) {
	if len(o.AllowListMapping) > 0 || o.AllowListMappingManifest != "" {
		o.Apply()
		return
	}
	if o.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.DisabledMetrics)
}

func run(ctx context.Context, options *Options) error {
	config, err := options.Config()
	if err != nil {
		return err
	}
	if register := config.Registration; register != nil && options.Registration.Dir == "" {
		defer func() { _ = os.RemoveAll(register.Dir) }()
	}
	provider, err := options.tracer(ctx, config)
	if err != nil {
		return err
	}
	if provider != nil {
		config.Tracer = provider
		defer func() {
			// ctx has ended, and the last spans are still to be exported.
			if err := provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to export the last spans")
			}
		}()
	}
	agent, err := config.New()
	if err != nil {
		return err
	}
	hub := "to be registered with"
	if config.Hub != nil {
		hub = config.Hub.Host
	}
	klog.FromContext(ctx).Info("Starting", "version", version.Short(), "cluster", config.ClusterName,
		"hub", hub, "managedCluster", config.Managed.Host, "agentID", config.AgentID)
	defer klog.Flush()
	return agent.Run(ctx)
}
