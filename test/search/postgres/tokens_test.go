package postgres_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// TestTokensDependOnTheScope checks that resources outside of the scope change neither the token of a page nor whether
// the next page is available.
func TestTokensDependOnTheScope(t *testing.T) {
	dsn := postgrestest.Start(t)
	engine := open(t, postgres.Options{DSN: dsn})
	for _, cluster := range []string{"local-cluster", "c1"} {
		report := &search.Report{Cluster: cluster, Hub: cluster == "local-cluster", Full: true, Time: time.Now()}
		for _, id := range []string{"a", "b", "c"} {
			report.Put = append(report.Put, resource(cluster, id, text("kind", "ConfigMap"), text("kind_plural", "configmaps"), text("namespace", "shop"),
				text("name", "config-"+id), text("created", "2025-11-01T00:00:00Z")))
		}
		mustApply(t, engine, report)
	}
	scope := visibilitytest.Scope(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: see}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
- {apiGroups: [""], resources: [configmaps], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see, namespace: c1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: see}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: see}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`, &user.DefaultInfo{Name: "jane"})
	other := open(t, postgres.Options{DSN: dsn})
	page := func(e search.Engine, property, token string) *search.Result {
		t.Helper()
		result, err := e.Search(within(t), scope, &search.Request{Items: true, Limit: 2, OrderBy: []search.Order{{Property: property}}, Continue: token, Now: time.Now()})
		if err != nil {
			t.Fatalf("page by %s after the token %q: %v", property, token, err)
		}
		if len(result.Items) != 2 || result.Count != 6 {
			t.Fatalf("page by %s = %d of %d items, want 2 of 6", property, len(result.Items), result.Count)
		}
		return result
	}
	tokens := map[string]string{}
	for _, property := range []string{query.Name, query.Created} {
		tokens[property] = page(engine, property, "").Continue
		sealed, err := base64.RawURLEncoding.DecodeString(tokens[property])
		if err != nil || strings.Contains(string(sealed), "config-") || strings.Contains(string(sealed), `"`+"k"+`"`) {
			t.Errorf("decoded token by %s = %q, %v, want one that is sealed", property, sealed, err)
		}
	}
	// The names and times of these resources are of another type, and not in the scope.
	for cluster, hidden := range map[string]search.Resource{
		"c1":            resource("c1", "hidden", text("kind", "Secret"), text("kind_plural", "secrets"), text("namespace", "shop"), text("name", "123"), text("created", "new")),
		"local-cluster": resource("local-cluster", "hidden", text("kind", "Lease"), text("kind_plural", "leases"), text("namespace", "shop"), text("name", "123"), text("created", "new")),
	} {
		mustApply(t, engine, &search.Report{Cluster: cluster, Hub: cluster == "local-cluster", Put: []search.Resource{hidden}, Time: time.Now()})
	}
	for _, property := range []string{query.Name, query.Created} {
		second := page(other, property, tokens[property])
		if first := page(engine, property, "").Continue; len(first) != len(tokens[property]) {
			t.Errorf("length of the token by %s = %d with hidden resources, want the %d without them", property, len(first), len(tokens[property]))
		}
		if third := page(engine, property, second.Continue); third.Continue != "" {
			t.Errorf("token of the last page by %s = %q, want none", property, third.Continue)
		}
	}
}

// TestTokensSurviveOtherTypes checks that a cluster cannot end the pages of an order for all callers by reporting, and
// deleting, values of another type.
func TestTokensSurviveOtherTypes(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	var want []string
	report := &search.Report{Cluster: "c1", Full: true, Time: time.Now()}
	for i := range 20 {
		properties := []query.Property{text("kind", "ConfigMap"), text("kind_plural", "configmaps"), text("name", fmt.Sprintf("config-%02d\x01", i))}
		if i < 15 {
			properties = append(properties, text("created", fmt.Sprintf("2025-11-01T00:00:00.0000%02dZ", i)))
		}
		report.Put = append(report.Put, resource("c1", fmt.Sprintf("%02d", i), properties...))
		want = append(want, report.Put[i].UID)
	}
	mustApply(t, engine, report)
	other := resource("c2", "other", text("kind", "ConfigMap"), text("kind_plural", "configmaps"), text("name", "123"), text("created", "new"))
	for _, order := range []search.Order{{Property: query.Name}, {Property: query.Name, Descending: true}, {Property: query.Created}, {Property: query.Created, Descending: true}} {
		var got []string
		for page, token := 0, ""; page == 0 || token != ""; page++ {
			result, err := engine.Search(within(t), visibility.Everything(), &search.Request{Items: true, Limit: 3, OrderBy: []search.Order{order}, Continue: token, Now: time.Now()})
			if err != nil {
				t.Fatalf("page %d by %v: %v", page, order, err)
			}
			for i := range result.Items {
				if result.Items[i].Cluster == "c1" {
					got = append(got, result.Items[i].UID)
				}
			}
			token = result.Continue
			change := &search.Report{Cluster: "c2", Time: time.Now(), Put: []search.Resource{other}}
			if page%3 == 2 {
				change.Put, change.Delete = nil, []string{other.UID}
			}
			mustApply(t, engine, change)
		}
		mustApply(t, engine, &search.Report{Cluster: "c2", Time: time.Now(), Delete: []string{other.UID}})
		inOrder := slices.Clone(want)
		switch {
		case order.Descending && order.Property == query.Created:
			slices.Reverse(inOrder[:15])
		case order.Descending:
			slices.Reverse(inOrder)
		}
		if !slices.Equal(got, inOrder) {
			t.Errorf("items by %v = %v, want %v", order, got, inOrder)
		}
	}
}
