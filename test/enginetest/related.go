package enginetest

import "open-cluster-management.io/hub-apiserver/pkg/search"

func edge(cluster, source, sourceKind, dest, destKind, relation string) search.Edge {
	return search.Edge{SourceUID: cluster + "/" + source, SourceKind: sourceKind, DestUID: cluster + "/" + dest, DestKind: destKind, Type: relation}
}

// chained returns a full report with Deployment ← ReplicaSet ← Pods → Node, one Pod with a Secret and
// a ConfigMap, and a Service for another Pod.
func chained(t tester, cluster string) *search.Report {
	t.Helper()
	report := full(t, cluster,
		object{"deploy", `{"kind":"Deployment","kind_plural":"deployments","apigroup":"apps","name":"deploy","namespace":"a"}`},
		object{"set", `{"kind":"ReplicaSet","kind_plural":"replicasets","apigroup":"apps","name":"set","namespace":"a"}`},
		object{"pod1", `{"kind":"Pod","kind_plural":"pods","name":"pod1","namespace":"a"}`},
		object{"pod2", `{"kind":"Pod","kind_plural":"pods","name":"pod2","namespace":"a"}`},
		object{"node", `{"kind":"Node","kind_plural":"nodes","name":"node"}`},
		object{"other", `{"kind":"Pod","kind_plural":"pods","name":"other","namespace":"b"}`},
		object{"secret", `{"kind":"Secret","kind_plural":"secrets","name":"secret","namespace":"a"}`},
		object{"config", `{"kind":"ConfigMap","kind_plural":"configmaps","name":"config","namespace":"a"}`},
		object{"svc", `{"kind":"Service","kind_plural":"services","name":"svc","namespace":"a"}`},
	)
	report.AddEdges = []search.Edge{
		edge(cluster, "set", "ReplicaSet", "deploy", "Deployment", "ownedBy"),
		edge(cluster, "pod1", "Pod", "set", "ReplicaSet", "ownedBy"),
		edge(cluster, "pod2", "Pod", "set", "ReplicaSet", "ownedBy"),
		edge(cluster, "pod1", "Pod", "node", "Node", "runsOn"),
		edge(cluster, "pod2", "Pod", "node", "Node", "runsOn"),
		edge(cluster, "other", "Pod", "node", "Node", "runsOn"),
		edge(cluster, "pod1", "Pod", "secret", "Secret", "attachedTo"),
		edge(cluster, "secret", "Secret", "config", "ConfigMap", "usedBy"),
		edge(cluster, "svc", "Service", "pod2", "Pod", "usedBy"),
	}
	return report
}

// relatedUIDs returns the UIDs of all related resources, in the order of kinds.
func relatedUIDs(result *search.Result) []string {
	var uids []string
	for _, related := range result.Related {
		uids = append(uids, uidsOf(related.Items)...)
	}
	return uids
}
