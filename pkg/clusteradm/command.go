// Package clusteradm implements the command line of a hub.
package clusteradm

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// New returns the clusteradm command.
func New(in io.Reader, out, errOut io.Writer) *cobra.Command {
	streams := genericiooptions.IOStreams{In: in, Out: out, ErrOut: errOut}
	access := genericclioptions.NewConfigFlags(true)
	command := &cobra.Command{
		Use:          "clusteradm",
		Short:        "Work with an Open Cluster Management hub",
		Version:      version.Long(),
		SilenceUsage: true,
	}
	command.SetIn(in)
	command.SetOut(out)
	command.SetErr(errOut)
	access.AddFlags(command.PersistentFlags())
	command.AddCommand(
		newInit(access, streams), newJoin(access, streams), newAccept(access, streams), newUnjoin(access, streams),
		newSearch(access, streams), newDoctor(access, streams), newMigrate(access, streams), newRestore(access, streams),
		newHub(access, streams), newAuth(access, streams), newConsole(access, streams),
		newGet(access, streams), newUpgrade(access, streams), newVersion(access, streams),
	)
	return command
}
