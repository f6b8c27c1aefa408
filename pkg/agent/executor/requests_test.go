package executor

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func TestRequestsOfTarget(t *testing.T) {
	t.Parallel()
	web := func(verb, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: name}
	}
	space := func(verb, namespace, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "namespaces", Namespace: namespace, Name: name}
	}
	target := func(strategy workv1.UpdateStrategyType, removed bool) work.Target {
		return work.Target{Resource: deployments, Namespace: "shop", Name: "web", Strategy: strategy, Removed: removed}
	}
	for _, test := range []struct {
		name   string
		target work.Target
		want   []authorizationv1.ResourceAttributes
	}{
		{"ReadOnly requires get", target(workv1.UpdateStrategyTypeReadOnly, false), []authorizationv1.ResourceAttributes{web("get", "web")}},
		{"ReadOnly is not removed", target(workv1.UpdateStrategyTypeReadOnly, true), []authorizationv1.ResourceAttributes{web("get", "web")}},
		{"CreateOnly requires no update", target(workv1.UpdateStrategyTypeCreateOnly, false),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", "")}},
		{"CreateOnly requires delete if it is removed with the ManifestWork", target(workv1.UpdateStrategyTypeCreateOnly, true),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", ""), web("delete", "web")}},
		{"a POST has no name", target(workv1.UpdateStrategyTypeUpdate, true),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"an orphaned object requires no delete", target(workv1.UpdateStrategyTypeUpdate, false),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web")}},
		{"server-side apply creates by name", target(workv1.UpdateStrategyTypeServerSideApply, true),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", "web"), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"requests for a Namespace have its namespace, except create",
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeUpdate, Removed: true},
			[]authorizationv1.ResourceAttributes{space("get", "shop", "shop"), space("create", "", ""), space("update", "shop", "shop"), space("patch", "shop", "shop"), space("delete", "shop", "shop")}},
		{"requests for a Namespace have its namespace, including create by server-side apply",
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeServerSideApply},
			[]authorizationv1.ResourceAttributes{space("get", "shop", "shop"), space("create", "shop", "shop"), space("update", "shop", "shop"), space("patch", "shop", "shop")}},
		{"an unknown strategy requires all verbs", target("Other", true),
			[]authorizationv1.ResourceAttributes{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := requestsOf(test.target); !slices.Equal(got, test.want) {
				t.Errorf("requestsOf() = %v, want %v", got, test.want)
			}
		})
	}
}
