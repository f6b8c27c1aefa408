// Command clusteradm is the command line of an Open Cluster Management hub. As
// kubectl-clusteradm on the PATH, it is a plugin of kubectl.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
)

func main() {
	if err := cli.RunNoErrOutput(clusteradm.New(os.Stdin, os.Stdout, os.Stderr)); err != nil {
		// Print the error as plain text for users, not as a log entry.
		_, _ = fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
