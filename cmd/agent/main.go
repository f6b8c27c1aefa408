// Command agent is the managed-cluster agent of Open Cluster Management.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"open-cluster-management.io/hub-apiserver/pkg/agent"
)

func main() {
	os.Exit(cli.Run(agent.NewCommand()))
}
