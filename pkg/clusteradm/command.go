// Package clusteradm is the command line of a hub. Each command is a package below.
package clusteradm

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/accept"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/auth"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/console"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/doctor"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/install"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/join"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/migrate"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/rehome"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/restore"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/search"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// New returns the clusteradm command.
func New(in io.Reader, out, errOut io.Writer) *cobra.Command {
	env := cli.Environment{ConfigFlags: genericclioptions.NewConfigFlags(true), IOStreams: genericiooptions.IOStreams{In: in, Out: out, ErrOut: errOut}}
	command := &cobra.Command{
		Use:          "clusteradm",
		Short:        "Work with an Open Cluster Management hub",
		Version:      version.Long(),
		SilenceUsage: true,
	}
	command.SetIn(in)
	command.SetOut(out)
	command.SetErr(errOut)
	env.AddFlags(command.PersistentFlags())
	command.AddCommand(
		install.NewInit(env), install.NewClean(env), join.New(env), accept.New(env), join.NewUnjoin(env), search.New(env), doctor.New(env),
		migrate.New(env),
		restore.New(env), rehome.New(env), auth.New(env), console.New(env), install.NewGet(env), install.NewVersion(env),
		cli.Group("upgrade", "Upgrade the server of the hub, or the agent of a managed cluster", `Upgrade the server of the hub, or the agent of a managed cluster, to the release of this command. The
settings stay as they are.`, install.NewUpgrade(env), join.NewUpgrade(env)),
	)
	return command
}
