package executor

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func TestRequestsOfTarget(t *testing.T) {
	t.Parallel()
	web := func(verb, name string) access.Request {
		return access.Request{Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: name}
	}
	space := func(verb, namespace, name string) access.Request {
		return access.Request{Verb: verb, Version: "v1", Resource: "namespaces", Namespace: namespace, Name: name}
	}
	target := func(strategy workv1.UpdateStrategyType, removed bool) work.Target {
		return work.Target{Resource: deployments, Namespace: "shop", Name: "web", Strategy: strategy, Removed: removed}
	}
	for _, test := range []struct {
		name   string
		mode   Mode
		target work.Target
		want   []access.Request
	}{
		{"what is only read takes get", Impersonate, target(workv1.UpdateStrategyTypeReadOnly, false), []access.Request{web("get", "web")}},
		{"what is only read is not removed", Review, target(workv1.UpdateStrategyTypeReadOnly, true), []access.Request{web("get", "web")}},
		{"what is only created takes no update", Impersonate, target(workv1.UpdateStrategyTypeCreateOnly, false),
			[]access.Request{web("get", "web"), web("create", "")}},
		{"and delete if it goes with the work", Impersonate, target(workv1.UpdateStrategyTypeCreateOnly, true),
			[]access.Request{web("get", "web"), web("create", ""), web("delete", "web")}},
		{"a POST is judged without the name", Impersonate, target(workv1.UpdateStrategyTypeUpdate, true),
			[]access.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"an orphan takes no delete", Impersonate, target(workv1.UpdateStrategyTypeUpdate, false),
			[]access.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web")}},
		{"server-side apply creates by name", Impersonate, target(workv1.UpdateStrategyTypeServerSideApply, true),
			[]access.Request{web("get", "web"), web("create", "web"), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"a review names what is created", Review, target(workv1.UpdateStrategyTypeUpdate, true),
			[]access.Request{web("get", "web"), web("create", "web"), web("update", "web"), web("patch", "web"), web("delete", "web")}},
		{"a namespace is within itself but when it is made", Impersonate,
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeUpdate, Removed: true},
			[]access.Request{space("get", "shop", "shop"), space("create", "", ""), space("update", "shop", "shop"), space("patch", "shop", "shop"), space("delete", "shop", "shop")}},
		{"and when server-side apply makes it, too", Impersonate,
			work.Target{Resource: namespaces, Name: "shop", Strategy: workv1.UpdateStrategyTypeServerSideApply},
			[]access.Request{space("get", "shop", "shop"), space("create", "shop", "shop"), space("update", "shop", "shop"), space("patch", "shop", "shop")}},
		{"an unknown strategy may do anything", Impersonate, target("Other", true),
			[]access.Request{web("get", "web"), web("create", ""), web("update", "web"), web("patch", "web"), web("delete", "web")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := requestsOf(test.mode, test.target); !slices.Equal(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}
