package inventory

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rowResource is what the state knows the cluster's own row by. No resource of a
// cluster has its name, so it does not get in the way of the hub's ManagedClusters.
var rowResource = &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "clusters"}, kind: "Cluster", reported: true}

// nodes is the resource whose objects make up the capacity of the cluster.
var nodes = schema.GroupResource{Resource: "nodes"}

// clusterRow is the row that stands for the cluster itself. It is found by whoever
// may list ManagedClusters.
type clusterRow struct {
	cluster, endpoint string

	mu      sync.Mutex
	version string
}

// setVersion sets the version of Kubernetes.
func (c *clusterRow) setVersion(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

// refresh brings the row in the state up to date.
func (c *clusterRow) refresh(s *state) {
	c.mu.Lock()
	version := c.version
	c.mu.Unlock()
	properties := map[string]any{
		"name": c.cluster, "kind": rowResource.kind,
		"kind_plural": "managedclusters", "apigroup": "cluster.open-cluster-management.io", "apiversion": "v1",
	}
	if version != "" {
		properties["kubernetesVersion"] = version
	}
	if c.endpoint != "" {
		properties["apiEndpoint"] = c.endpoint
	}
	if count, total := s.capacityOf(nodes); count > 0 {
		properties["nodes"], properties["cpu"], properties["memory"] = count, total.cpu, total.memory
	}
	// Strings and integers can always be encoded.
	encoded, _ := json.Marshal(properties)
	s.put(&record{resource: rowResource, uid: "cluster__" + c.cluster, name: c.cluster, properties: encoded})
}
