package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/node"
)

// runNodes starts clusters with real nodes, the first of which is to be the hub, and runs until ctx is done. Its user
// installs the hub. The data are those of this run only.
func runNodes(ctx context.Context, clusters []string) (err error) {
	if err := node.Missing(); err != nil {
		return err
	}
	network, err := node.NewNetwork()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	dir, err := os.MkdirTemp(stateDir, "nodes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var images []node.Image
	for image, program := range map[string]string{"hub-apiserver:dev": "apiserver", "hub-apiserver-agent:dev": "agent"} {
		path, err := localhub.Binary(localhub.BinDir(), program)
		if err != nil {
			return err
		}
		images = append(images, node.Image{Name: image, Program: path, Path: "/" + program})
	}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var processes []*localhub.Process
	for _, name := range append([]string{"hub"}, clusters...) {
		data := filepath.Join(dir, name)
		if err := os.Mkdir(data, 0o700); err != nil {
			return err
		}
		cluster, failed := network.StartCluster(startCtx, data, localhub.ClusterOptions{Name: name, LogDir: logDir, NoFsync: true})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, cluster.Kill()) }()
		if err := errors.Join(cluster.Node.Import(startCtx, images...), cluster.WriteAdminKubeconfig(kubeconfigOf(cluster.Cluster))); err != nil {
			return err
		}
		fmt.Printf("==> %s has the node %s: kubectl --kubeconfig %s\n", name, cluster.Node.Address, kubeconfigOf(cluster.Cluster))
		processes = append(processes, cluster.Processes()...)
	}
	fmt.Println("    Install the hub as README describes, with the images hub-apiserver:dev and hub-apiserver-agent:dev. Ctrl-C removes all clusters")
	if failed := firstExit(ctx, processes); failed != nil {
		return failed.Failure()
	}
	return nil
}
