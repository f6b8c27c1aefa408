package preflight

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func TestRequestsOfTarget(t *testing.T) {
	t.Parallel()
	web := func(verb, name string) accessreview.Request {
		return accessreview.Request{Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: name}
	}
	space := func(verb, namespace, name string) accessreview.Request {
		return accessreview.Request{Verb: verb, Version: "v1", Resource: "namespaces", Namespace: namespace, Name: name}
	}
	target := func(strategy workv1.UpdateStrategyType, removed bool) work.Target {
		return work.Target{Resource: deployments, Namespace: "shop", Name: "web", Strategy: strategy, Removed: removed}
	}
	for _, test := range []struct {
		name   string
		mode   Mode
		target work.Target
		want   []accessreview.Request
	}{
		{"ReadOnly requires get", Impersonate, target(workv1.UpdateStrategyTypeReadOnly, false), []accessreview.Request{web("get", "web")}},
		{"ReadOnly is not removed", Review, target(workv1.UpdateStrategyTypeReadOnly, true), []accessreview.Request{web("get", "web")}},
		{"CreateOnly requires no update", Impersonate, target(workv1.UpdateStrategyTypeCreateOnly, false),
			[]accessreview.Request{web("get", "web"), web("create", "")}},
		{"CreateOnly requires delete if it is removed with the ManifestWork", Impersonate, target(workv1.UpdateStrategyTypeCreateOnly, true),
			[]accessreview.Request{web("get", "web"), web("create", ""), web("delete", "web")}},
		{"a POST has no name", Impersonate, target(workv1.UpdateStrategyTypeUpdate, true),
			[]accessreview.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"an orphaned object requires no delete", Impersonate, target(workv1.UpdateStrategyTypeUpdate, false),
			[]accessreview.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web")}},
		{"server-side apply creates by name", Impersonate, target(workv1.UpdateStrategyTypeServerSideApply, true),
			[]accessreview.Request{web("get", "web"), web("create", "web"), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"mode Review uses the name of a created object", Review, target(workv1.UpdateStrategyTypeUpdate, true),
			[]accessreview.Request{web("get", "web"), web("create", "web"), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"requests for a Namespace have its namespace, except create", Impersonate,
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeUpdate, Removed: true},
			[]accessreview.Request{space("get", "shop", "shop"), space("create", "", ""), space("update", "shop", "shop"), space("patch", "shop", "shop"), space("delete", "shop", "shop")}},
		{"requests for a Namespace have its namespace, including create by server-side apply", Impersonate,
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeServerSideApply},
			[]accessreview.Request{space("get", "shop", "shop"), space("create", "shop", "shop"), space("update", "shop", "shop"), space("patch", "shop", "shop")}},
		{"an unknown strategy requires all verbs", Impersonate, target("Other", true),
			[]accessreview.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := requestsOf(test.mode, test.target); !slices.Equal(got, test.want) {
				t.Errorf("requestsOf() = %v, want %v", got, test.want)
			}
		})
	}
}
