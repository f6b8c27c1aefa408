package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	rbacHeader = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: {name: %q%s}\n"
	seeRule    = `{apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}`
)

func clusterRole(name, rule string) string {
	return fmt.Sprintf(rbacHeader+"rules: [%s]\n", "ClusterRole", name, "", rule)
}

const binding = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q}\n" +
	"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: caller}]\n"

// bindCluster returns a ClusterRoleBinding of a ClusterRole for the caller.
func bindCluster(role string) string {
	return fmt.Sprintf(rbacHeader+binding, "ClusterRoleBinding", role, "", role)
}

// bind returns a RoleBinding of a ClusterRole for the caller in a namespace.
func bind(role, namespace string) string {
	return fmt.Sprintf(rbacHeader+binding, "RoleBinding", role, ", namespace: "+namespace, role)
}

// scoped applies reports of the hub and two managed clusters, each with the same resources.
func scoped(t testing.TB, engine search.Engine) {
	t.Helper()
	for _, cluster := range []string{hub, "c1", "c2"} {
		report := full(t, cluster,
			object{"ns-a", `{"kind":"Namespace","kind_plural":"namespaces","name":"a"}`},
			object{"pod-a", `{"kind":"Pod","kind_plural":"pods","name":"pod","namespace":"a","restarts":1,"onlyPods":"secretly"}`},
			object{"pod-b", `{"kind":"Pod","kind_plural":"pods","name":"pod","namespace":"b","restarts":2}`},
			object{"deploy-a", `{"kind":"Deployment","kind_plural":"deployments","apigroup":"apps","name":"deploy","namespace":"a"}`},
			object{"secret-a", `{"kind":"Secret","kind_plural":"secrets","name":"secret","namespace":"a","onlySecrets":"x"}`},
			object{"secret-b", `{"kind":"Secret","kind_plural":"secrets","name":"second","namespace":"b"}`},
			object{"cfg-one", `{"kind":"ConfigMap","kind_plural":"configmaps","name":"one","namespace":"a"}`},
			object{"cfg-two", `{"kind":"ConfigMap","kind_plural":"configmaps","name":"two","namespace":"a"}`},
		)
		report.AddEdges = []search.Edge{
			edge(cluster, "pod-a", "Pod", "deploy-a", "Deployment", "ownedBy"),
			edge(cluster, "pod-a", "Pod", "secret-a", "Secret", "attachedTo"),
			edge(cluster, "pod-a", "Pod", "cfg-one", "ConfigMap", "attachedTo"),
		}
		apply(t, engine, report)
	}
	// Properties must not make a resource one of the hub. A Secret must be recognized by its kind or
	// by its plural.
	apply(t, engine, delta(t, "c1",
		object{"forged", `{"kind":"Pod","kind_plural":"pods","name":"forged","namespace":"a","_hubClusterResource":true,"cluster":"local-cluster","hub":true}`},
		object{"spelled-1", `{"kind":"Secret","kind_plural":"things","apigroup":"example.com","name":"spelled","namespace":"a"}`},
		object{"spelled-2", `{"kind":"Thing","kind_plural":"secrets","name":"spelled","namespace":"a"}`},
	))
}

func in(cluster, ids string) string {
	var uids []string
	for _, id := range strings.Fields(ids) {
		uids = append(uids, cluster+"/"+id)
	}
	return strings.Join(uids, " ") + " "
}

func testScopes(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	scoped(t, engine)
	const managed = "ns-a pod-a pod-b deploy-a cfg-one cfg-two"
	listAll := clusterRole("all", `{apiGroups: ["*"], resources: ["*"], verbs: [list]}`)
	see := clusterRole("see", seeRule)
	named := clusterRole("named", `{apiGroups: [""], resources: [configmaps], resourceNames: [two, none], verbs: [list]}`)
	for _, test := range []struct {
		name  string
		scope visibility.Scope
		want  string
	}{
		{"Zero", visibility.Scope{}, ""},
		{"NoPermission", scopeOf(t, ""), ""},
		{"Everything", everything(), in(hub, managed+" secret-a secret-b") + in("c1", managed+" forged") + in("c2", managed)},
		{"HubOnly", scopeOf(t, listAll+bindCluster("all")), in(hub, managed+" secret-a secret-b")},
		{"HubNamespace", scopeOf(t, listAll+bind("all", "a")), in(hub, "pod-a deploy-a secret-a cfg-one cfg-two")},
		{"HubTwoNamespaces", scopeOf(t, listAll+bind("all", "a")+bind("all", "b")), in(hub, "pod-a deploy-a secret-a cfg-one cfg-two pod-b secret-b")},
		{"HubNamespaceThatDoesNotExist", scopeOf(t, listAll+bind("all", "c")), ""},
		{"HubGroupAndResource", scopeOf(t, clusterRole("apps", `{apiGroups: [apps], resources: [deployments], verbs: [list]}`)+bindCluster("apps")), in(hub, "deploy-a")},
		{"HubClusterScoped", scopeOf(t, clusterRole("ns", `{apiGroups: [""], resources: [namespaces], verbs: [list]}`)+bindCluster("ns")), in(hub, "ns-a")},
		{"HubOtherVerb", scopeOf(t, clusterRole("get", `{apiGroups: ["*"], resources: ["*"], verbs: [get, watch]}`)+bindCluster("get")), ""},
		{"HubResourceNames", scopeOf(t, named+bindCluster("named")), in(hub, "cfg-two")},
		{"HubResourceNamesInANamespace", scopeOf(t, named+bind("named", "a")), in(hub, "cfg-two")},
		{"HubResourceNamesInAnotherNamespace", scopeOf(t, named+bind("named", "b")), ""},
		{"ManagedCluster", scopeOf(t, see+bind("see", "c1")), in("c1", managed+" forged")},
		{"ManagedClusters", scopeOf(t, see+bindCluster("see")), in("c1", managed+" forged") + in("c2", managed)},
		{"ManagedClusterAndHubNamespace", scopeOf(t, see+listAll+bind("see", "c2")+bind("all", "b")), in("c2", managed) + in(hub, "pod-b secret-b")},
		{"ManagedClusterThatDoesNotExist", scopeOf(t, see+bind("see", "c3")), ""},
		{"HubIsNotAManagedCluster", scopeOf(t, see+bind("see", hub)), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, when := range []string{"first", "again"} {
				sameWords(t, when, findAll(t, engine, test.scope, query.Query{}), test.want)
			}
			checkScope(t, engine, test.scope, strings.Fields(test.want))
		})
	}
	t.Run("FollowsReports", func(t *testing.T) {
		scope := scopeOf(t, listAll+see+bind("all", "a")+bind("see", "c1"))
		before := len(findAll(t, engine, scope, query.Query{}))
		apply(t, engine, delta(t, hub, object{"new", `{"kind":"New","kind_plural":"news","apigroup":"fresh.io","name":"new","namespace":"a"}`},
			object{"new-b", `{"kind":"New","kind_plural":"news","apigroup":"fresh.io","name":"new","namespace":"b"}`}))
		apply(t, engine, delta(t, "c1", object{"new", `{"kind":"New","name":"new"}`}))
		apply(t, engine, delta(t, "c2", object{"new", `{"kind":"New","name":"new"}`}))
		sameWords(t, "new resources", findAll(t, engine, scope, parse(t, `kind:New`)), "local-cluster/new c1/new")
		// One resource leaves the scope, and another resource enters it.
		apply(t, engine, delta(t, hub, object{"new", `{"kind":"New","kind_plural":"news","apigroup":"fresh.io","name":"new","namespace":"b"}`},
			object{"new-b", `{"kind":"New","kind_plural":"news","apigroup":"fresh.io","name":"new","namespace":"a"}`}))
		sameWords(t, "resources that moved", findAll(t, engine, scope, parse(t, `kind:New`)), "local-cluster/new-b c1/new")
		gone := delta(t, hub)
		gone.Delete = []string{"local-cluster/new", "local-cluster/new-b"}
		apply(t, engine, gone)
		if after := len(findAll(t, engine, scope, query.Query{})); after != before+1 {
			t.Errorf("number of resources after one is added = %d, want %d", after, before+1)
		}
	})
	t.Run("ManyNamespaces", func(t *testing.T) {
		policy := listAll
		for i := range 3000 {
			policy += bind("all", fmt.Sprintf("ns-%d", i))
		}
		sameWords(t, "found", findAll(t, engine, scopeOf(t, policy+bind("all", "b")), parse(t, `kind:Pod`)), "local-cluster/pod-b")
	})
}

// checkScope checks that the answers to Get, Complete, Schema and Search contain only visible
// resources.
func checkScope(t *testing.T, engine search.Engine, scope visibility.Scope, visible []string) {
	t.Helper()
	sees := map[string]bool{}
	for _, uid := range visible {
		sees[uid] = true
	}
	kinds, properties, total := map[string]bool{}, map[string]bool{}, 0
	for _, cluster := range []string{hub, "c1", "c2"} {
		for _, id := range strings.Fields("ns-a pod-a pod-b deploy-a secret-a secret-b cfg-one cfg-two forged spelled-1 spelled-2") {
			uid := cluster + "/" + id
			item := get(t, engine, scope, uid)
			if (item != nil) != sees[uid] {
				t.Errorf("Get(%s) returns an item = %t, want %t", uid, item != nil, sees[uid])
			}
			if item == nil {
				continue
			}
			for _, p := range decode(t, string(item.JSON())) {
				if p.Name == query.Kind {
					kinds[p.Leaves[0].Text] = true
				}
				if !query.Hidden(p.Name) && p.Name != query.Cluster {
					properties[p.Name] = true
				}
			}
		}
	}
	completed := map[string]bool{}
	for _, v := range complete(t, engine, scope, &search.CompletionRequest{Property: query.Kind, Limit: -1}).Values {
		completed[v.Value] = true
		total += v.Count
	}
	same(t, "values of Complete(kind)", completed, kinds)
	if total != len(visible) {
		t.Errorf("sum of the counts of Complete(kind) = %d, want %d", total, len(visible))
	}
	counted, sum := find(t, engine, scope, &search.Request{CountBy: query.Kind, CountLimit: -1}), 0
	for _, v := range counted.Counts {
		if !kinds[v.Value] {
			t.Errorf("Search() counts kind %s, which is not visible", v.Value)
		}
		sum += v.Count
	}
	if sum != len(visible) || counted.Count != sum {
		t.Errorf("Search(): Count = %d, sum of the counts by kind = %d, want %d", counted.Count, sum, len(visible))
	}
	inSchema := map[string]bool{}
	for _, s := range schema(t, engine, scope, query.Query{}) {
		inSchema[s.Name] = true
	}
	same(t, "properties in the schema", inSchema, properties)
	related := find(t, engine, scope, &search.Request{
		Query: parse(t, `kind:Deployment,Secret,ConfigMap`), Related: true, RelatedDepth: 2, RelatedItems: true, RelatedLimit: -1,
	})
	for _, uid := range relatedUIDs(related) {
		if !sees[uid] {
			t.Errorf("related resources contain %s, which is not visible", uid)
		}
	}
	for _, one := range related.Related {
		if one.Count != len(one.Items) {
			t.Errorf("Count of related %s = %d, want %d, the number of items", one.Kind, one.Count, len(one.Items))
		}
	}
	for _, keyword := range []string{"secretly", "second", "forged", "s", "se"} {
		for _, uid := range findAll(t, engine, scope, query.Query{Keywords: []string{keyword}}) {
			if !sees[uid] {
				t.Errorf("Search(%s) returns %s, which is not visible", keyword, uid)
			}
		}
	}
}
