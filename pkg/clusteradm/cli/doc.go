// Package cli contains what the commands of clusteradm share: the clients of a cluster, output, findings and waiting.
package cli
