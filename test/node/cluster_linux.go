package node

import (
	"context"
	"errors"
	"path/filepath"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// Cluster is a cluster with one node, which also runs its control plane.
type Cluster struct {
	*localhub.Cluster
	// Node is the node of the cluster.
	Node *Node
}

// StartCluster starts a cluster with its data in an existing directory. The options need no Host and no directory. If
// it fails, nothing runs.
func (n *Network) StartCluster(ctx context.Context, dir string, options localhub.ClusterOptions) (*Cluster, error) {
	node, err := n.Add(options.Name, dir)
	if err != nil {
		return nil, err
	}
	options.Dir, options.Host, options.Nodes = filepath.Join(node.dir, "cluster"), node.Host(), true
	c := &Cluster{Node: node}
	if c.Cluster, err = localhub.NewCluster(options); err != nil {
		return nil, err
	}
	if err = node.Join(c.Cluster); err == nil {
		err = c.Cluster.Start(ctx)
	}
	if err == nil {
		err = node.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// Kill ends the node and the control plane.
func (c *Cluster) Kill() error { return errors.Join(c.Node.Crash(), c.Cluster.Kill()) }

// Processes returns the processes of the control plane and of the node.
func (c *Cluster) Processes() []*localhub.Process {
	return append(c.Cluster.Processes(), c.Node.Processes()...)
}
