package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

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

func testRelated(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	apply(t, engine, chained(t, hub))
	apply(t, engine, chained(t, "c"))
	for _, test := range []struct {
		name, query string
		depth       int
		kinds       []string
		want        string
	}{
		{"AnEdgeInEitherDirection", `name:set`, 0, nil, "c/deploy c/pod1 c/pod2"},
		{"DepthOneIsTheDefault", `name:deploy`, 1, nil, "c/set"},
		{"DepthTwo", `name:deploy`, 2, nil, "c/set c/pod1 c/pod2"},
		{"DepthThreeWithoutSecrets", `name:deploy`, 3, nil, "c/set c/pod1 c/pod2 c/node c/svc"},
		{"PathsEndAtNodes", `name:deploy`, 5, nil, "c/set c/pod1 c/pod2 c/node c/svc"},
		{"PathsStartAtNodes", `kind:Node`, 1, nil, "c/pod1 c/pod2 c/other"},
		{"PathsFromNodesContinue", `kind:Node`, 2, nil, "c/pod1 c/pod2 c/other c/set c/svc"},
		{"MatchesAreNotRelated", `kind:Pod`, 1, nil, "c/set c/node c/svc"},
		{"MatchesAreNotRelatedToEachOther", `name:set,deploy`, 1, nil, "c/pod1 c/pod2"},
		{"PathsGoThroughMatches", `name:set,deploy,pod1`, 2, []string{"Pod", "Node", "Service", "ReplicaSet"}, "c/pod2 c/node c/svc"},
		{"PathsDoNotPassInvisibleResources", `name:pod1`, 2, []string{"ConfigMap"}, ""},
		{"KindsIgnoreCase", `name:set`, 1, []string{"pod"}, "c/pod1 c/pod2"},
		{"KindsRestrictTheAnswerNotThePath", `name:deploy`, 2, []string{"Pod"}, "c/pod1 c/pod2"},
		{"NothingMatches", `name:none`, 3, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := &search.Request{
				Query: parse(t, test.query+" cluster:c"), Related: true, RelatedDepth: test.depth, RelatedKinds: test.kinds, RelatedItems: true, RelatedLimit: -1,
			}
			sameWords(t, "related", relatedUIDs(find(t, engine, everything(), request)), test.want)
			request.Items, request.Limit = true, -1
			sameWords(t, "related with all items", relatedUIDs(find(t, engine, everything(), request)), test.want)
		})
	}
	t.Run("InvisibleResourcesOfTheHub", func(t *testing.T) {
		q := parse(t, `name:pod1 cluster:`+hub)
		request := &search.Request{Query: q, Related: true, RelatedDepth: 2, RelatedKinds: []string{"ConfigMap"}, RelatedItems: true, RelatedLimit: -1}
		sameWords(t, "with Secrets", relatedUIDs(find(t, engine, everything(), request)), hub+"/config")
		all := `{apiGroups: [""], resources: [pods, configmaps], verbs: [list]}`
		scope := scopeOf(t, clusterRole("some", all)+bindCluster("some"))
		sameWords(t, "without Secrets", relatedUIDs(find(t, engine, scope, request)), "")
	})
}
