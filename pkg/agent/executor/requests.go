package executor

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// requestsOf returns the requests that the life of an object takes.
func requestsOf(mode Mode, target work.Target) []access.Request {
	requests := []access.Request{requestOf("get", target)}
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

// replaceable is whether the object is deleted and created again when its role
// changes, since the roleRef of a binding cannot be changed. In mode Review the agent
// does that as itself, and asks when it comes to it.
func replaceable(target work.Target) bool {
	if target.Strategy != workv1.UpdateStrategyTypeUpdate || target.Resource.Group != rbacv1.GroupName {
		return false
	}
	return target.Resource.Resource == "rolebindings" || target.Resource.Resource == "clusterrolebindings"
}

// requestOf is a request that names the object.
func requestOf(verb string, target work.Target) access.Request {
	request := access.Request{
		Verb: verb, Group: target.Resource.Group, Version: target.Resource.Version, Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if target.Resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		// To authorizers, a request that names a namespace is within it.
		request.Namespace = target.Name
	}
	return request
}

// createOf is the request that creates the object. A POST has the name in its
// body, where no authorizer looks, so that a rule with resourceNames allows none.
func createOf(mode Mode, target work.Target) access.Request {
	request := requestOf("create", target)
	if posts(target) {
		// That of the target, since a namespace that does not exist holds no roles.
		request.Namespace = target.Namespace
		if mode == Impersonate {
			request.Name = ""
		}
	}
	return request
}

// posts is whether the object is created by POST; server-side apply does it by PATCH.
func posts(target work.Target) bool {
	return target.Strategy != workv1.UpdateStrategyTypeServerSideApply
}
