// Command apiserver serves the APIs of an Open Cluster Management hub.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/command"
)

func main() {
	root := command.New()
	root.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(root))
}
