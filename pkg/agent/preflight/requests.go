package preflight

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// requestsOf returns the requests that the lifecycle of an object requires.
func requestsOf(mode Mode, target work.Target) []accessreview.Request {
	requests := []accessreview.Request{requestOf("get", target)}
	if target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return requests
	}
	requests = append(requests, createOf(mode, target))
	if target.Strategy != workv1.UpdateStrategyTypeCreateOnly {
		requests = append(requests, requestOf("update", target), requestOf("patch", target))
	}
	if target.Removed || mode == Impersonate && replaceable(target) {
		requests = append(requests, requestOf("delete", target))
	}
	return requests
}

// replaceable reports whether the object is a binding that is deleted and created again when its
// roleRef changes. In mode Review, the agent does that as itself, and checks the permission at that
// time.
func replaceable(target work.Target) bool {
	if target.Strategy != workv1.UpdateStrategyTypeUpdate || target.Resource.Group != rbacv1.GroupName {
		return false
	}
	return target.Resource.Resource == "rolebindings" || target.Resource.Resource == "clusterrolebindings"
}

// requestOf returns a request that names the object.
func requestOf(verb string, target work.Target) accessreview.Request {
	request := accessreview.Request{
		Verb: verb, Group: target.Resource.Group, Version: target.Resource.Version, Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if target.Resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		// For authorizers, a request for a Namespace object is in that namespace.
		request.Namespace = target.Name
	}
	return request
}

// createOf returns the request that creates the object. In a POST, the name is in the body, which
// authorizers do not read. So a rule with resourceNames does not allow it.
func createOf(mode Mode, target work.Target) accessreview.Request {
	request := requestOf("create", target)
	if posts(target) {
		// A namespace that does not exist yet contains no roles.
		request.Namespace = target.Namespace
		if mode == Impersonate {
			request.Name = ""
		}
	}
	return request
}

// posts reports whether the object is created by POST. Server-side apply uses PATCH.
func posts(target work.Target) bool {
	return target.Strategy != workv1.UpdateStrategyTypeServerSideApply
}
