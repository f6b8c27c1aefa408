package enginetest

import (
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// queried applies reports with the resources of testQueries.
func queried(t tester, engine search.Engine) {
	t.Helper()
	apply(t, engine, full(t, "alpha",
		object{"pod1", `{"kind":"Pod","kind_plural":"pods","apiversion":"v1","name":"nginx-1","namespace":"web","status":"Running","restarts":9,
			"created":"2025-11-01T11:30:00Z","startedAt":"2025-11-01T11:30:30Z","label":{"app":"nginx","team":"blue"},
			"container":["nginx","sidecar"],"image":["quay.io/nginx:1.25"],"podIP":"10.0.0.1","_ownerUID":"alpha/secretive"}`},
		object{"pod2", `{"kind":"Pod","kind_plural":"pods","apiversion":"v1","name":"redis-1","namespace":"data","status":"CrashLoopBackOff","restarts":100,
			"created":"2025-10-31T13:00:00Z","label":{"app":"redis","team":"red"},"container":["redis"],"image":["quay.io/redis:7"]}`},
		object{"pod3", `{"kind":"Pod","kind_plural":"pods","apiversion":"v1","name":"Nginx-UPPER","namespace":"web","status":"Pending","restarts":10,
			"created":"2025-10-20T00:00:00Z","label":{"app":"nginx","team":"red"},"container":["nginx"]}`},
		// This resource has no status, restarts or label.
		object{"config", `{"kind":"ConfigMap","kind_plural":"configmaps","apiversion":"v1","name":"nginx-config","namespace":"data","created":"2024-12-01T00:00:00Z"}`},
		// Different properties contain the keywords nginx and blue.
		object{"deploy", `{"kind":"Deployment","kind_plural":"deployments","apigroup":"apps","apiversion":"v1","name":"nginx","namespace":"blue",
			"desired":3,"available":2.5,"ready":true,"created":"2023-01-01T00:00:00Z","condition":{"Available":"True"}}`},
	))
	apply(t, engine, full(t, "beta",
		object{"pod1", `{"kind":"Pod","kind_plural":"pods","apiversion":"v1","name":"api-1","namespace":"web","status":"Running","restarts":0,
			"created":"2025-11-01T00:00:00Z","label":{"app":"api"},"cluster":"alpha"}`},
		// This kind starts in lower case, and restarts is a numeric string.
		object{"custom", `{"kind":"pod","kind_plural":"pods","apigroup":"example.com","apiversion":"v2","name":"custom","restarts":"20"}`},
	))
	apply(t, engine, full(t, hub, object{"ns", `{"kind":"Namespace","kind_plural":"namespaces","apiversion":"v1","name":"web","status":"Active"}`}))
}

// testQueries checks queries that the random ones of testDifferential hardly contain. The tests of package query have a
// row for each rule.
func testQueries(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	queried(t, engine)
	for _, test := range []struct{ name, query, want string }{
		{"EmptyQuery", ``, "alpha/config alpha/deploy alpha/pod1 alpha/pod2 alpha/pod3 beta/custom beta/pod1 local-cluster/ns"},
		{"FiltersMustAllHold", `kind:Pod namespace:web status:Running`, "alpha/pod1 beta/pod1"},
		{"KindInUpperCaseIsExact", `kind:POD`, ""},
		{"KeywordsInDifferentProperties", `nginx blue`, "alpha/deploy alpha/pod1"},
		{"KeywordNotInHiddenProperty", `secretive`, ""},
		{"KeywordAndFilter", `nginx kind:ConfigMap`, "alpha/config"},
		{"NotEqualMatchesResourcesWithoutTheProperty", `status!=Running`, "alpha/config alpha/deploy alpha/pod2 alpha/pod3 beta/custom local-cluster/ns"},
		{"SeveralNegativesEachWithOperator", `status:!=Running,!=Pending kind:Pod`, "alpha/pod2"},
		{"NegativesAndAlternatives", `name:nginx*,redis*,!=nginx-1`, "alpha/config alpha/deploy alpha/pod2"},
		{"NumbersInRange", `restarts>5 restarts<50 kind:Pod`, "alpha/pod1 alpha/pod3"},
		{"NumbersWithFraction", `available>2.4 available<2.6`, "alpha/deploy"},
		{"LastHour", `created:hour`, "alpha/pod1"},
		{"OlderThanYear", `created<year`, "alpha/deploy"},
		{"TimesCompareAcrossZones", `created>="2025-11-01T12:30:00+01:00"`, "alpha/pod1"},
		{"LabelsOfTwoFilters", `label:app=nginx label:team=red`, "alpha/pod3"},
		{"WildcardInside", `name:n*x-*g`, "alpha/config"},
		{"WildcardsDoNotOverlap", `name:nginx-1*1`, ""},
		{"ClusterWithWildcard", `cluster:al*,local*  kind!=Pod`, "alpha/config alpha/deploy local-cluster/ns"},
		{"ClusterIsTheReportingCluster", `cluster:alpha name:api-1`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sameWords(t, test.query, findAll(t, engine, everything(), parse(t, test.query)), test.want)
		})
	}
	t.Run("AgesAreRelativeToNow", func(t *testing.T) {
		later := find(t, engine, everything(), &search.Request{Query: parse(t, `created:hour`), Now: now.Add(40 * time.Minute)})
		if later.Count != 0 {
			t.Errorf("Search(created:hour) 40 minutes later: Count = %d, want 0", later.Count)
		}
	})
	t.Run("Items", func(t *testing.T) {
		result := find(t, engine, everything(), &search.Request{Query: parse(t, `name:web`), Items: true, Limit: 10})
		want := search.Item{UID: "local-cluster/ns", Cluster: hub, Hub: true,
			Object: search.JSON(`{"apiversion":"v1","kind":"Namespace","kind_plural":"namespaces","name":"web","status":"Active"}`)}
		if len(result.Items) != 1 {
			t.Fatalf("Search(name:web) = %d items, want 1", len(result.Items))
		}
		want.Version = version(t, engine)
		same(t, "item", result.Items[0], want)
		same(t, "Get()", get(t, engine, everything(), want.UID), &want)
	})
}
