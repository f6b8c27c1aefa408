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
func scoped(t tester, engine search.Engine) {
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
			sameWords(t, "found", findAll(t, engine, test.scope, query.Query{}), test.want)
		})
	}
	t.Run("ManyNamespaces", func(t *testing.T) {
		policy := listAll
		for i := range 3000 {
			policy += bind("all", fmt.Sprintf("ns-%d", i))
		}
		sameWords(t, "found", findAll(t, engine, scopeOf(t, policy+bind("all", "b")), parse(t, `kind:Pod`)), "local-cluster/pod-b")
	})
}
