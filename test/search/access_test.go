package search

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestAccessReports checks that the content of roles and bindings gets from agents to the server, that no request
// returns it, and that the server has it after a kill.
func TestAccessReports(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, HubAgent: true})
	direct := framework.Direct(t, f.Server)
	known := func(ctx context.Context) error {
		raw, err := direct.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		// The hub is not a managed cluster.
		if !strings.Contains(string(raw), `hub_apiserver_access_clusters{state="known"} 1`) {
			return errors.New("the metrics do not contain one known cluster")
		}
		return nil
	}
	framework.Eventually(t, "the RBAC of the cluster is known", known)

	found := searched(t, f.OCM, "kind:AccessReport cluster:"+framework.Cluster1)
	if len(found.Items) != 1 || !strings.Contains(asJSON(t, found), `"status":"Complete"`) {
		t.Errorf("the AccessReport of the cluster = %s, want one with the status Complete", asJSON(t, found))
	}
	answers := map[string]any{
		"search":         searched(t, f.OCM, "kind:ClusterRole,ClusterRoleBinding,AccessReport"),
		"keyword":        searched(t, f.OCM, "cluster-admin"),
		"fleetresources": framework.Must(f.OCM.SearchV1alpha1().FleetResources(framework.Cluster1).List(t.Context(), metav1.ListOptions{FieldSelector: "kind=ClusterRole"}))(t),
		"graphql": framework.Must(graphqlPost(t.Context(), f.OCM, consoleQuery, map[string]any{
			"input": []any{map[string]any{"filters": []any{map[string]any{"property": "kind", "values": []string{"ClusterRole"}}}}},
		}))(t),
	}
	for request, answer := range answers {
		text := asJSON(t, answer)
		if !strings.Contains(text, "cluster-admin") {
			t.Errorf("the answer to %s = %.500s, want one with the ClusterRole cluster-admin", request, text)
		}
		for _, name := range []string{inventory.Rules, inventory.RoleRef, inventory.Subjects, inventory.Access, "nonResourceURLs"} {
			if strings.Contains(text, name) {
				t.Errorf("the answer to %s contains %s, want none", request, name)
			}
		}
	}
	for _, query := range []string{"_rules:*", "_subjects:*masters*", "_rules:[] kind:ClusterRole", "nonResourceURLs"} {
		if got := searched(t, f.OCM, query); len(got.Items) > 0 {
			t.Errorf("search %s finds %d resources, want none", query, len(got.Items))
		}
	}

	if err := f.Server.Process.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the RBAC of the cluster is known after a kill of the server", known)
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
