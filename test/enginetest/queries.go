package enginetest

import (
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
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

func testQueries(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	queried(t, engine)
	pods := "alpha/pod1 alpha/pod2 alpha/pod3 beta/pod1"
	for _, test := range []struct{ name, query, want string }{
		{"EmptyQuery", ``, "alpha/config alpha/deploy alpha/pod1 alpha/pod2 alpha/pod3 beta/custom beta/pod1 local-cluster/ns"},
		{"Filter", `kind:Pod`, pods},
		{"ValuesAreAlternatives", `namespace:data,blue`, "alpha/config alpha/deploy alpha/pod2"},
		{"FiltersMustAllHold", `kind:Pod namespace:web status:Running`, "alpha/pod1 beta/pod1"},
		{"NothingMatches", `kind:Pod namespace:nowhere`, ""},
		{"ValuesCompareByCase", `status:running`, ""},

		{"KindInLowerCaseIgnoresCase", `kind:pod`, pods + " beta/custom"},
		{"KindInLowerCaseWithWildcard", `kind:deploy*`, "alpha/deploy"},
		{"KindInUpperCaseIsExact", `kind:POD`, ""},
		{"KindNotEqual", `kind!=Pod,ConfigMap name!=web`, "alpha/deploy beta/custom"},

		{"KeywordInAnyProperty", `blue`, "alpha/deploy alpha/pod1"},
		{"KeywordIgnoresCase", `NGINX`, "alpha/config alpha/deploy alpha/pod1 alpha/pod3"},
		{"KeywordsInDifferentProperties", `nginx blue`, "alpha/deploy alpha/pod1"},
		{"KeywordInLabel", `"team=red"`, "alpha/pod2 alpha/pod3"},
		{"KeywordInCluster", `bet`, "beta/custom beta/pod1"},
		{"KeywordInNumber", `100`, "alpha/pod2"},
		{"KeywordInsideWord", `ash`, "alpha/pod2"},
		{"KeywordOfOneLetter", `z`, "alpha/config alpha/pod1 alpha/pod2 alpha/pod3 alpha/deploy beta/pod1"},
		{"KeywordNotInHiddenProperty", `secretive`, ""},
		{"KeywordAndFilter", `nginx kind:ConfigMap`, "alpha/config"},
		{"KeywordsWithoutCommonResource", `redis blue`, ""},

		{"NotEqualMatchesResourcesWithoutTheProperty", `status!=Running`, "alpha/config alpha/deploy alpha/pod2 alpha/pod3 beta/custom local-cluster/ns"},
		{"SeveralNegativesMustAllHold", `status!=Running,Pending kind:Pod`, "alpha/pod2"},
		{"SeveralNegativesEachWithOperator", `status:!=Running,!=Pending kind:Pod`, "alpha/pod2"},
		{"NegativesAndAlternatives", `name:nginx*,redis*,!=nginx-1`, "alpha/config alpha/deploy alpha/pod2"},
		{"NotEqualOfUnknownProperty", `nothing!=x kind:Deployment`, "alpha/deploy"},
		{"NotEqualOfLabel", `label!=app=nginx kind:Pod`, "alpha/pod2 beta/pod1"},
		{"NotEqualOfList", `container!=sidecar kind:Pod`, "alpha/pod2 alpha/pod3 beta/pod1"},
		{"UnknownProperty", `nothing:x`, ""},

		{"NumbersCompareAsNumbers", `restarts>9 kind:Pod`, "alpha/pod2 alpha/pod3"},
		{"NumbersAtLeast", `restarts>=9 kind:Pod`, "alpha/pod1 alpha/pod2 alpha/pod3"},
		{"NumbersBelow", `restarts<10 kind:Pod`, "alpha/pod1 beta/pod1"},
		{"NumbersAtMost", `restarts<=10 kind:Pod`, "alpha/pod1 alpha/pod3 beta/pod1"},
		{"NumbersInRange", `restarts>5 restarts<50 kind:Pod`, "alpha/pod1 alpha/pod3"},
		{"NumbersEqualInAnotherForm", `restarts:10.0`, "alpha/pod3"},
		{"NumbersNotEqual", `restarts!=10 kind:Pod`, "alpha/pod1 alpha/pod2 beta/pod1"},
		{"NumbersWithFraction", `available>2.4 available<2.6`, "alpha/deploy"},
		{"NumbersNegative", `restarts>-1 kind:Pod`, pods},
		{"TextIsNotANumber", `status>5`, ""},
		{"Boolean", `ready:true`, "alpha/deploy"},
		{"TextsCompareByBytes", `name>nginx-config kind:Pod`, "alpha/pod2"},

		{"LastHour", `created:hour`, "alpha/pod1"},
		{"LastDay", `created:day`, "alpha/pod1 alpha/pod2 beta/pod1"},
		{"LastMonth", `created:month`, pods},
		{"LastYear", `created:year`, "alpha/config " + pods},
		{"OlderThanYear", `created<year`, "alpha/deploy"},
		{"NotLastDay", `created!=day kind:Pod`, "alpha/pod3"},
		{"TimesCompareAsTimes", `created>2025-10-31T12:59:59Z`, "alpha/pod1 alpha/pod2 beta/pod1"},
		{"TimesCompareAcrossZones", `created>="2025-11-01T12:30:00+01:00"`, "alpha/pod1"},
		{"TimesCompareWithDate", `created<2025-01-01`, "alpha/config alpha/deploy"},

		{"Label", `label:app=nginx`, "alpha/pod1 alpha/pod3"},
		{"LabelsAreAlternatives", `label:app=api,team=blue`, "alpha/pod1 beta/pod1"},
		{"LabelsOfTwoFilters", `label:app=nginx label:team=red`, "alpha/pod3"},
		{"LabelKeyAlone", `label:team`, "alpha/pod1 alpha/pod2 alpha/pod3"},
		{"LabelKeyWithWildcard", `label:te*`, "alpha/pod1 alpha/pod2 alpha/pod3"},
		{"LabelValueWithWildcard", `label:team=b*`, "alpha/pod1"},
		{"LabelValueAloneDoesNotMatch", `label:nginx`, ""},
		{"LabelValueIsWhole", `label:app=ngin`, ""},
		{"Condition", `condition:Available=True`, "alpha/deploy"},

		{"ListElement", `container:sidecar`, "alpha/pod1"},
		{"ListElementIsWhole", `container:side`, ""},
		{"ListElementWithWildcard", `image:quay.io/*`, "alpha/pod1 alpha/pod2"},

		{"WildcardAtEnd", `name:nginx-*`, "alpha/config alpha/pod1"},
		{"WildcardAtStart", `name:*-1`, "alpha/pod1 alpha/pod2 beta/pod1"},
		{"WildcardInside", `name:n*x-*g`, "alpha/config"},
		{"WildcardAlone", `status:*`, "alpha/pod1 alpha/pod2 alpha/pod3 beta/pod1 local-cluster/ns"},
		{"WildcardsCompareByCase", `name:nginx-u*`, ""},
		{"WildcardsDoNotOverlap", `name:nginx-1*1`, ""},
		{"WildcardNotEqual", `name!=*-1 kind:Pod`, "alpha/pod3"},
		{"WildcardOfNumber", `restarts:1*`, "alpha/pod2 alpha/pod3"},

		{"Cluster", `cluster:beta`, "beta/custom beta/pod1"},
		{"ClusterNotEqual", `cluster!=beta kind:Pod`, "alpha/pod1 alpha/pod2 alpha/pod3"},
		{"ClusterWithWildcard", `cluster:al*,local*  kind!=Pod`, "alpha/config alpha/deploy local-cluster/ns"},
		{"ClusterIsTheReportingCluster", `cluster:alpha name:api-1`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sameWords(t, test.query, findAll(t, engine, everything(), parse(t, test.query)), test.want)
		})
	}
	t.Run("CountIsTheNumberOfResources", func(t *testing.T) {
		// One Pod contains the keyword in its name, a label, a container and an image.
		if result := find(t, engine, everything(), &search.Request{Query: parse(t, `nginx`)}); result.Count != 4 {
			t.Errorf("Search(nginx): Count = %d, want 4", result.Count)
		}
	})
	t.Run("CountIsNotLimited", func(t *testing.T) {
		result := find(t, engine, everything(), &search.Request{Items: true, Limit: 1})
		if result.Count != 8 || len(result.Items) != 1 {
			t.Errorf("Search() with limit 1: Count %d and %d items, want 8 and 1", result.Count, len(result.Items))
		}
	})
	t.Run("LiteralHasNoWildcards", func(t *testing.T) {
		q := query.Query{Filters: []query.Filter{{Property: "name", Comparisons: []query.Comparison{query.NewComparison(query.Equal, "nginx-*")}}}}
		sameWords(t, "found with the literal name nginx-*", findAll(t, engine, everything(), q), "")
	})
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
