package main

import (
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/hub-apiserver/test/demo"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// showDemo fills the hub with a fleet, within start, and keeps it alive until ctx ends. The function that it returns waits
// until that has ended.
func showDemo(start, ctx context.Context, hub *localhub.Cluster) (wait func(), err error) {
	begin := time.Now()
	fleet, err := demo.Fill(start, hub)
	if err != nil {
		return nil, err
	}
	fmt.Printf("==> a fleet of %d simulated clusters after %.1fs: look at it with clusteradm console\n", demo.Clusters, time.Since(begin).Seconds())
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fleet.Live(ctx)
	}()
	return func() { stop(); <-ended }, nil
}
