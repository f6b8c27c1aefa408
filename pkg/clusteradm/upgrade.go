package clusteradm

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

func newUpgrade(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade the server of the hub, or the agent of a managed cluster",
		Long: `Upgrade the server of the hub, or the agent of a managed cluster, to the release of this command. The
settings stay as they are.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newUpgradeHub(access, streams), newUpgradeAgent(access, streams))
	return command
}

func newUpgradeHub(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	i := &initializing{
		access: access, streams: streams, auth: []string{string(registerv1alpha1.DriverCSR)}, apiserver: modeDeploy,
		timeout: defaultTimeout, tokenDuration: defaultTokenDuration, hub: newHubSettings(), upgrade: true,
	}
	command := &cobra.Command{
		Use:     "hub",
		Aliases: []string{"clustermanager"},
		Short:   "Upgrade the server on the hub of the current context",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			i.parsed(command.Flags())
			i.hub.image.upgrade()
			return i.run(command.Context())
		},
	}
	flags := command.Flags()
	i.hub.image.addFlags(flags, "server")
	flags.BoolVar(&i.wait, "wait", false, "Wait until the server serves.")
	flags.DurationVar(&i.timeout, "timeout", i.timeout, "Maximum duration of the command.")
	i.addFlags(flags, "")
	return command
}

func newUpgradeAgent(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	j := &joining{
		access: access, streams: streams, auth: []string{string(registerv1alpha1.DriverCSR)}, agent: modeDeploy,
		timeout: defaultTimeout, settings: agentSettings{namespace: defaultAgentNamespace}, upgrade: true,
	}
	command := &cobra.Command{
		Use:     "agent",
		Aliases: []string{"klusterlet"},
		Short:   "Upgrade the agent on the managed cluster of the current context",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			j.parsed(command.Flags())
			j.settings.image.upgrade()
			return j.run(command.Context())
		},
	}
	flags := command.Flags()
	j.settings.image.addFlags(flags, "agent")
	addAgentNamespace(flags, &j.settings.namespace)
	flags.BoolVar(&j.wait, "wait", false, "Wait until the agent is available.")
	flags.DurationVar(&j.timeout, "timeout", j.timeout, "Maximum duration of the command.")
	j.addFlags(flags, "")
	return command
}

func addAgentNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "agent-namespace", *namespace, "Namespace of the agent. Each hub requires its own namespace.")
}

// upgrade selects the release of this command, unless flags name another image.
func (i *imageSettings) upgrade() {
	if i.image == "" {
		i.version = cmp.Or(i.version, version.Short())
	}
}
