// Package rehome contains the commands clusteradm hub, which replace a hub that is lost by another one.
package rehome

import (
	"github.com/spf13/cobra"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// New returns the command clusteradm hub.
func New(env cli.Environment) *cobra.Command {
	return cli.Group("hub", "Prepare for the loss of a hub, and replace it", "", newExport(env), newStandby(env), newAdopt(env))
}
