package postgres_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// TestGetMany checks which resources are found by their UIDs, and their order.
func TestGetMany(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	for _, cluster := range []string{"c1", "c2", "local-cluster"} {
		hub := cluster == "local-cluster"
		mustApply(t, engine, &search.Report{Cluster: cluster, Hub: hub, Full: true, Time: time.Now(), Put: []search.Resource{
			resource(cluster, "a", text("kind", "Pod"), text("kind_plural", "pods"), text("namespace", "shop"), text("name", "a")),
			resource(cluster, "s/x", text("kind", "Secret"), text("kind_plural", "secrets"), text("namespace", "shop"), text("name", "s")),
			{UID: search.ClusterUIDPrefix + cluster, Properties: resource(cluster, "", text("kind", "Cluster"), text("name", cluster)).Properties},
		}})
	}
	scope := visibilitytest.Scope(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: see}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see, namespace: c2}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: see}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`, &user.DefaultInfo{Name: "jane"})
	for _, test := range []struct {
		name       string
		scope      visibility.Scope
		uids, want []string
	}{
		{"the order of the UIDs", visibility.Everything(), []string{"local-cluster/a", "c2/a", "none/a", "c1/none", "c1/a"}, []string{"local-cluster/a", "c2/a", "c1/a"}},
		{"UIDs with several slashes", visibility.Everything(), []string{"local-cluster/s/x"}, []string{"local-cluster/s/x"}},
		{"clusters", visibility.Everything(), []string{"cluster__c2", "cluster__none", "cluster__c1"}, []string{"cluster__c2", "cluster__c1"}},
		{"UIDs of no cluster", visibility.Everything(), []string{"", "a", "/", "c1", "c1/", "cluster__", "cluster__c1/a", "\x00"}, nil},
		{"a scope", scope, []string{"c1/a", "c2/a", "c2/s/x", "local-cluster/a", "cluster__c1"}, []string{"c2/a"}},
		{"no UIDs", visibility.Everything(), nil, nil},
	} {
		items, err := engine.GetMany(within(t), test.scope, test.uids)
		var got []string
		for i := range items {
			got = append(got, items[i].UID)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: GetMany(%q) = %q, %v, want %q", test.name, test.uids, got, err, test.want)
		}
		for _, uid := range test.uids {
			item, err := search.Get(within(t), engine, test.scope, uid)
			if found := item != nil && item.UID == uid; err != nil || found != slices.Contains(test.want, uid) {
				t.Errorf("%s: Get(%q) = %v, %v, want it found only if it is one of %q", test.name, uid, item, err, test.want)
			}
		}
	}
}
