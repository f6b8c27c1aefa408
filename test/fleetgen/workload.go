package fleetgen

import (
	"encoding/json"
	"fmt"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// Properties are the properties of a reported resource.
type Properties map[string]any

// Resource returns a resource as an agent reports it.
func Resource(cluster, uid string, of Properties) inventory.Resource {
	out := inventory.Resource{UID: cluster + "/" + uid, Properties: map[string]json.RawMessage{}}
	for name, value := range of {
		encoded, err := json.Marshal(value)
		if err != nil {
			panic(err) // the values of tests can be encoded
		}
		out.Properties[name] = encoded
	}
	return out
}

// Workload returns a report that contains a Deployment, its ReplicaSet and Pods, their Node, and the relations.
func Workload(cluster string, pods int) inventory.Sync {
	edge := func(source, sourceKind, dest, destKind, relation string) inventory.Edge {
		return inventory.Edge{SourceUID: cluster + "/" + source, SourceKind: sourceKind, DestUID: cluster + "/" + dest, DestKind: destKind, EdgeType: relation}
	}
	out := inventory.Sync{
		AddResources: []inventory.Resource{
			Resource(cluster, "deployment", Properties{"kind": "Deployment", "kind_plural": "deployments", "apigroup": "apps", "apiversion": "v1", "name": "web", "namespace": "shop", "desired": pods, "ready": pods, "available": pods, "updated": pods, "created": "2026-01-01T00:00:00Z"}),
			Resource(cluster, "replicaset", Properties{"kind": "ReplicaSet", "kind_plural": "replicasets", "apigroup": "apps", "apiversion": "v1", "name": "web-1", "namespace": "shop", "_ownerUID": cluster + "/deployment"}),
			Resource(cluster, "node", Properties{"kind": "Node", "kind_plural": "nodes", "apiversion": "v1", "name": "worker", "status": "Ready", "role": []string{"worker"}, "kubeletVersion": "v1.36.3", "cpu": 8, "ipAddress": "10.0.0.7"}),
		},
		AddEdges: []inventory.Edge{edge("replicaset", "ReplicaSet", "deployment", "Deployment", "ownedBy")},
	}
	for i := range pods {
		uid := fmt.Sprintf("pod-%d", i)
		out.AddResources = append(out.AddResources, Resource(cluster, uid, Properties{
			"kind": "Pod", "kind_plural": "pods", "apiversion": "v1", "name": fmt.Sprintf("web-1-%d", i), "namespace": "shop", "status": "Running", "restarts": i, "node": "worker", "podIP": fmt.Sprintf("10.1.0.%d", i), "image": []string{"registry.example/web:1.2"},
			"created": "2026-01-01T00:00:00Z", "_ownerUID": cluster + "/replicaset",
		}))
		out.AddEdges = append(out.AddEdges, edge(uid, "Pod", "replicaset", "ReplicaSet", "ownedBy"), edge(uid, "Pod", "deployment", "Deployment", "ownedBy"), edge(uid, "Pod", "node", "Node", "runsOn"))
	}
	return out
}
