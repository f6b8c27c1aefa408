package inventory

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rowResource is the resource of the cluster's own row in the state. No cluster serves a resource
// of this name, so the row cannot collide with the ManagedClusters of a hub.
var rowResource = &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "clusters"}, kind: "Cluster", reported: true}

// nodes is the resource of the objects that add up to the capacity of the cluster.
var nodes = schema.GroupResource{Resource: "nodes"}

// clusterRow is the row of the cluster itself. Users with permission to list
// ManagedClusters can find it.
type clusterRow struct {
	cluster, endpoint string

	mu      sync.Mutex
	version string
}

func (c *clusterRow) setVersion(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

// refresh updates the row in the state.
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
	// The properties are strings and integers, so Marshal does not fail.
	encoded, _ := json.Marshal(properties)
	s.put(&record{resource: rowResource, uid: "cluster__" + c.cluster, name: c.cluster, properties: encoded})
}
