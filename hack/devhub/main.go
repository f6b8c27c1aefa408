// Command devhub is a complete Kubernetes control plane in one file: etcd,
// kube-apiserver, kube-controller-manager and kubectl of one Kubernetes release.
// `make run`, the integration tests and the benchmarks start it as the hub and as
// the managed clusters.
//
// It is one binary because the four programs share most of their code: the binary
// links once, and needs a third of the disk space.
//
// The name of the executable selects the program to run (a link named etcd,
// kube-apiserver, kube-controller-manager or kubectl). With any other name, the
// first argument selects it:
//
//	devhub kubectl version --client
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs name time zones; the machine may not have the database.

	"go.etcd.io/etcd/server/v3/etcdmain"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl: exec and OIDC credential plugins.
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// programs maps the name of each program to its main function.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	"kube-controller-manager": func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
	"kubectl":                 runKubectl,
}

func runKubectl() {
	// The constructor of the command (plugins, kuberc) needs the verbosity before the
	// flags are parsed. The parsing reports an invalid value.
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := programs[os.Args[1]]; ok {
			// The program receives its own name and arguments, as if a link started it.
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: devhub <%s> [argument...]\n", strings.Join(names, "|"))
	os.Exit(2)
}
